// The page: reads the model that the user names or gives, and shows its plan after each change of the form.

const part = (id) => document.getElementById(id);
// The only markup that is set as such is the planner's, which escapes every text of others.
const markup = window.trustedTypes?.createPolicy("plan", { createHTML: (text) => text }) ?? { createHTML: (text) => text };

const page = { planner: null, files: null, label: "", quants: null, document: "", plan: null, wanted: 0 };

function say(text, isBad = false) {
  part("progress").textContent = text;
  part("progress").className = isBad ? "no" : "faint";
}

/** What the flags call the model's files, as llama-server is started with them. */
function started() {
  const { files } = page;
  return ["llama-server", ...files.start, ...flags()].map(quoted).join(" ");
}

function asked() {
  const { files } = page;
  const projects = files.projector.length > 0 && field("mm").checked;
  const names = ["-m", files.name, ...(projects ? ["-mm", files.projectorName] : [])];
  return { models: { main: files.main, projector: projects ? files.projector : [] }, question: question(names) };
}

/** Plans again, and shows it. */
function show() {
  history.replaceState(null, "", fragment());
  part("slider").value = step(Number(value("c")));
  part("slider").setAttribute("aria-valuetext", value("c") ? `${value("c")} tokens` : "the model's own");
  if (!page.files) return;
  part("projects").hidden = page.files.projector.length === 0;
  const answer = part("answer");
  try {
    const given = asked();
    const { plan, html } = page.planner.ask({ answer: given });
    answer.innerHTML = markup.createHTML(html);
    Object.assign(page, { plan, document: given });
    offer(answer);
    answer.classList.remove("stale");
    part("take").hidden = false;
    part("paste").textContent = started();
    part("said").textContent = answer.querySelector(".verdict")?.textContent ?? "";
    const largest = part("largest");
    largest.hidden = plan.largest_context === null || String(plan.largest_context) === value("c");
    largest.textContent = `Use ${plan.largest_context}`;
    say(page.label);
  } catch (error) {
    answer.classList.add("stale");
    say(error.message, true);
  }
  if (page.quants) table();
}

/** Advice with flags gets a button that applies them. */
function offer(answer) {
  for (const code of answer.querySelectorAll("[data-flags]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Apply";
    button.setAttribute("aria-label", `Apply ${code.dataset.flags}`);
    button.addEventListener("click", () => {
      apply(code.dataset.flags);
      show();
      answer.focus();
    });
    code.after(" ", button);
  }
}

/** Reads what the form names. */
async function read() {
  const wanted = (page.wanted += 1);
  const hub = (value("hub") || HUB).replace(/\/+$/, "");
  try {
    const model = named(value("m"), hub);
    if (!model) return;
    say("reading …");
    forget();
    if (model.address) return await take(await set(model.address), wanted);
    const list = await listing(hub, model.repo);
    const choice = page.planner.ask({ choose: { files: list.files, tag: model.tag } });
    if (choice.quantisations.length === 0 || choice.chosen === null) throw new Error(`${model.repo}: ${choice.why}`);
    if (wanted !== page.wanted) return;
    page.quants = { list, all: choice.quantisations, rows: [], opening: new Map(), opened: new Map(), like: undefined };
    await pick(choice.quantisations[choice.chosen]);
    await compare(wanted);
  } catch (error) {
    if (wanted === page.wanted) say(error.message, true);
  }
}

/** The sources of a model at an address, with the other files of its set. */
async function set(address) {
  const [path, query] = address.split("?");
  const { files } = page.planner.ask({ siblings: { path } });
  const sources = files.map((file) => remote(query ? `${file}?${query}` : file));
  return { sources, start: ["-mu", address] };
}

function forget() {
  const files = [...(page.files?.main ?? []), ...(page.files?.projector ?? []), ...[...(page.quants?.opened.values() ?? [])].flatMap((one) => one.main ?? [])];
  page.planner.ask({ close: { files } });
  Object.assign(page, { files: null, quants: null });
  part("quants").hidden = true;
}

/** Opens the files of a model, and shows its plan. */
async function take({ sources, start }, wanted) {
  const main = [];
  for (const source of sources) main.push(await open(page.planner, source, engine()));
  if (wanted !== page.wanted) return;
  const bytes = sources.reduce((sum, source) => sum + source.traffic.bytes, 0);
  const requests = sources.reduce((sum, source) => sum + source.traffic.requests, 0);
  page.label = requests > 0 ? `${sources[0].name}: ${Math.ceil(bytes / 1024)} KiB of header in ${requests} requests` : `${sources[0].name}: its header was read here`;
  page.files = { main, name: sources[0].name, start, projector: [], projectorName: "" };
  show();
}

function engine() {
  return value("engine") ? { engine: value("engine") } : {};
}

/** The open files of a quantisation, which are read once. */
async function opened(quants, quant) {
  const begin = async () => {
    const sources = quant.files.map(quants.list.source);
    const main = [];
    for (const source of sources) {
      const like = main.length === 0 ? quants.like : undefined;
      main.push(await open(page.planner, source, { like, ...engine() }));
    }
    quants.like ??= main[0];
    quants.opened.set(quant, { main, sources });
    return quants.opened.get(quant);
  };
  if (!quants.opening.has(quant)) quants.opening.set(quant, begin());
  return quants.opening.get(quant);
}

/** Shows a quantisation of the repository. */
async function pick(quant) {
  const { quants, wanted } = page;
  const { main, sources } = await opened(quants, quant);
  if (quant.projector && !quants.projector) {
    const source = quants.list.source(quant.projector);
    quants.projector = { files: [await open(page.planner, source, engine())], name: source.name };
  }
  if (wanted !== page.wanted) return;
  quants.chosen = quant;
  field("m").value = `${quants.list.repo}:${quant.name}`;
  page.files = {
    main,
    name: sources[0].name,
    start: ["-hf", `${quants.list.repo}:${quant.name}`, ...(quants.projector && !field("mm").checked ? ["--no-mmproj"] : [])],
    projector: quants.projector?.files ?? [],
    projectorName: quants.projector?.name ?? "",
  };
  page.label = "";
  show();
}

/** Reads the headers of all quantisations, and fills the table as they come. */
async function compare(wanted) {
  const { quants } = page;
  part("quants").hidden = false;
  await each(quants.all, async (quant) => {
    if (wanted !== page.wanted) return;
    try {
      await opened(quants, quant);
    } catch (error) {
      quants.opened.set(quant, { error: error.message });
    }
    if (wanted === page.wanted) table();
  });
}

/** Plans the quantisations that have been read, and draws them. */
function table() {
  const { quants } = page;
  const { models, question: given } = asked();
  quants.rows = [...quants.opened].map(([quant, { main, error }]) => {
    if (error) return { quant, error };
    try {
      return figures(quant, page.planner.ask({ plan: { models: { ...models, main }, question: given } }));
    } catch (failure) {
      return { quant, error: failure.message };
    }
  });
  draw(quants.rows, quants.chosen, (quant) => void pick(quant).then(() => part("answer").focus()));
  const sources = [...quants.opened.values()].flatMap((one) => one.sources ?? []);
  const bytes = sources.reduce((sum, source) => sum + source.traffic.bytes, 0);
  const requests = sources.reduce((sum, source) => sum + source.traffic.requests, 0);
  const fitting = quants.rows.filter((row) => row.fits).length;
  part("quants-words").textContent = `${fitting} of ${quants.rows.length} fit with these flags · ${quants.opened.size} of ${quants.all.length} headers read: ${(bytes / 1048576).toFixed(1)} MiB in ${requests} requests`;
}
