// The table of a repository's quantisations: each is planned from its header alone.

const AT_ONCE = 6;
const mib = (bytes) => `${Math.round(bytes / 1048576)} MiB`;

/** The plan of one quantisation in figures; those that fit come first, the largest in front. */
function figures(quant, plan) {
  const peak = plan.cards.reduce((sum, card) => sum + card.peak, 0);
  const spare = Math.min(...plan.cards.map((card) => card.headroom));
  return { quant, fits: plan.fits, peak, spare, largest: plan.largest_context, speed: plan.speed?.decode?.likely ?? null };
}

function rank(row) {
  if (row.error) return [2, row.quant.size ?? 0];
  return row.fits ? [0, -(row.quant.size ?? 0)] : [1, row.quant.size ?? 0];
}

/** Draws the rows; `pick` is called with the quantisation that the user wants to see. */
function draw(rows, chosen, pick) {
  const sorted = rows.toSorted((a, b) => {
    const [x, y] = [rank(a), rank(b)];
    return x[0] - y[0] || x[1] - y[1];
  });
  const cell = (text, kind = "") => {
    const made = document.createElement("td");
    made.textContent = text;
    made.className = kind;
    return made;
  };
  const drawn = sorted.map((row) => {
    const line = document.createElement("tr");
    const name = cell("");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = row.quant.name;
    button.dataset.quant = row.quant.name;
    button.addEventListener("click", () => pick(row.quant));
    name.append(button);
    if (row.quant === chosen) line.setAttribute("aria-current", "true");
    line.append(name, cell(row.quant.size === null ? "unknown" : mib(row.quant.size), "number"));
    if (row.error) {
      const why = cell(row.error.split("\n")[0], "no");
      why.colSpan = 5;
      line.append(why);
      return line;
    }
    line.append(
      cell(mib(row.peak), "number"),
      cell(row.spare < 0 ? `−${mib(-row.spare)}` : mib(row.spare), "number"),
      cell(row.largest ?? "none", "number"),
      cell(row.speed === null ? "" : row.speed < 10 ? row.speed.toFixed(1) : row.speed.toFixed(0), "number"),
      cell(row.fits ? "fits" : "does not fit", row.fits ? "yes" : "no"),
    );
    return line;
  });
  // The focus stays on the row that the user was at.
  const held = document.activeElement?.dataset?.quant;
  document.getElementById("rows").replaceChildren(...drawn);
  if (held) drawn.map((line) => line.querySelector("button")).find((button) => button.dataset.quant === held)?.focus();
}

/** Calls `work` with each item, a few at a time, until all are done. */
async function each(items, work) {
  const left = [...items];
  const worker = async () => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}
