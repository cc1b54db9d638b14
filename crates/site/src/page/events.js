// What the user does: fields, cards, files, buttons. Then the page begins.

/** Files of a model, dropped or chosen: the first of a set, and its projector. */
async function give(list) {
  const wanted = (page.wanted += 1);
  const all = [...list].sort((a, b) => (a.name < b.name ? -1 : 1));
  const projector = all.find((file) => file.name.includes("mmproj"));
  const main = all.filter((file) => file !== projector);
  if (main.length === 0) return;
  try {
    forget();
    field("m").value = "";
    await take({ sources: main.map(local), start: ["-m", main[0].name] }, wanted);
    if (!projector || wanted !== page.wanted) return;
    page.files.projector = [await open(page.planner, local(projector), engine())];
    page.files.projectorName = projector.name;
    page.files.start.push("-mm", projector.name);
    show();
  } catch (error) {
    say(`${main[0].name}: ${error.message}`, true);
  }
}

function drawCards() {
  part("cards").replaceChildren(
    ...cards.map((card, at) => {
      const item = document.createElement("li");
      const name = document.createElement("span");
      name.textContent = card;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "×";
      button.setAttribute("aria-label", `Remove ${card}`);
      button.addEventListener("click", () => {
        cards = cards.filter((_, other) => other !== at);
        drawCards();
        part("card").focus();
        show();
      });
      item.append(name, button);
      return item;
    }),
  );
}

function addCard() {
  const text = part("card").value.trim();
  if (!text) return;
  try {
    page.planner.ask({ check_card: { card: text } });
    cards = [...cards, text];
    part("card").value = "";
    part("card-error").textContent = "";
    drawCards();
    show();
  } catch (error) {
    part("card-error").textContent = error.message;
  }
}

/** Copies a text, and says so on the button for a moment. */
async function copy(button, text) {
  const label = button.textContent;
  await navigator.clipboard.writeText(text).then(
    () => (button.textContent = "Copied"),
    () => (button.textContent = "Copying is not allowed here"),
  );
  setTimeout(() => (button.textContent = label), 1500);
}

function listen() {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (document.activeElement === part("card")) addCard();
    else void read();
  });
  form.addEventListener("input", ({ target }) => {
    if (target === part("slider")) field("c").value = stepped(Number(target.value));
    if (!["name", "card", "files", "hub", "engine"].includes(target.id)) show();
  });
  part("add").addEventListener("click", addCard);
  part("files").addEventListener("change", ({ target }) => void give(target.files));
  part("largest").addEventListener("click", () => {
    field("c").value = page.plan.largest_context;
    show();
    field("c").focus();
  });
  part("copy-flags").addEventListener("click", ({ target }) => void copy(target, part("paste").textContent));
  part("copy-link").addEventListener("click", ({ target }) => void copy(target, location.href));
  part("copy-json").addEventListener("click", ({ target }) => void copy(target, page.planner.text_of({ plan: page.document })));
  const drop = part("drop");
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop") void give(event.dataTransfer.files);
    });
  }
  addEventListener("hashchange", () => {
    restore();
    drawCards();
    void read();
  });
}

async function begin() {
  field("ctk").replaceChildren(...["", ...CACHES].map((kind) => new Option(kind || "as the engine", kind)));
  restore();
  drawCards();
  listen();
  try {
    page.planner = await planner(part("planner").textContent.trim());
  } catch (error) {
    return say(`This browser cannot run the planner: ${error.message}`, true);
  }
  const { cards: known } = page.planner.ask({ cards: {} });
  part("known").replaceChildren(...known.map(({ name, memory }) => new Option(mib(memory), name)));
  document.documentElement.dataset.ready = "true";
  show();
  await read();
}

void begin();
