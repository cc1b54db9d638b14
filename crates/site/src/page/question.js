// The question as the form, as flags of llama-server, and as the fragment of a link.

const CACHES = ["f16", "bf16", "f32", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"];
const FIELDS = ["m", "host", "c", "np", "ctk", "b", "ub", "flags", "hub", "engine"];
const form = document.getElementById("question");
const field = (name) => form.elements.namedItem(name);
const value = (name) => field(name).value.trim();

/** The chosen cards, each as `plimsoll plan --card` takes it. */
let cards = ["GeForce RTX 3090"];

/** Words as a shell splits them, without its other powers. */
function words(text) {
  return [...text.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map((one) => one[1] ?? one[2] ?? one[3]);
}

/** A word for a POSIX shell. */
function quoted(word) {
  return /^[\w./,:=@%+-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The engine's flags, without those of the model's files. */
function flags() {
  const cache = value("ctk");
  const set = [["-c", value("c")], ["-np", value("np")], ["-ctk", cache], ["-ctv", cache], ["-b", value("b")], ["-ub", value("ub")]];
  return [...set.filter(([, given]) => given).flat(), ...words(value("flags"))];
}

/** The question about files of these names. */
function question(files) {
  const optional = (name) => (value(name) ? { [name]: value(name) } : {});
  return { flags: [...files, ...flags()], cards, ...optional("host"), ...optional("engine") };
}

function fragment() {
  const query = new URLSearchParams();
  for (const name of FIELDS) if (value(name)) query.set(name, value(name));
  if (!field("mm").checked) query.set("mm", "0");
  for (const card of cards) query.append("card", card);
  return `#${query}`;
}

/** Fills the form from the page's address. */
function restore() {
  const query = new URLSearchParams(location.hash.slice(1));
  for (const name of FIELDS) if (query.has(name)) field(name).value = query.get(name);
  field("mm").checked = query.get("mm") !== "0";
  if (query.has("card")) cards = query.getAll("card");
  if (query.has("hub") || query.has("engine")) document.getElementById("more").open = true;
}

/** Puts advised flags into the form: into their own fields where there are some. */
function apply(advised) {
  const own = { "-c": "c", "-np": "np", "-ctk": "ctk", "-ctv": "ctk", "-b": "b", "-ub": "ub" };
  const given = words(advised);
  let rest = words(value("flags"));
  for (let at = 0; at < given.length; at += 1) {
    const flag = given[at];
    const takes = at + 1 < given.length && !given[at + 1].startsWith("-");
    const to = takes ? given[(at += 1)] : null;
    if (own[flag] && to) {
      field(own[flag]).value = to;
      continue;
    }
    // The last of two equal flags counts; the earlier one would only confuse.
    const before = rest.indexOf(flag);
    if (before >= 0) rest.splice(before, to === null ? 1 : 2);
    rest = [...rest, flag, ...(to === null ? [] : [to])];
  }
  field("flags").value = rest.map(quoted).join(" ");
}

/** Contexts of the slider: a quarter of a doubling each, from 1024 tokens. */
function stepped(step) {
  return Math.round((1024 * 2 ** (step / 4)) / 256) * 256;
}

function step(context) {
  return Math.round(4 * Math.log2(Math.max(1024, context || 4096) / 1024));
}
