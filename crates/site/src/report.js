// Moves the bars, the marks and the words to another context. Every point was planned; nothing here computes memory.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("points").textContent);
  const slider = document.getElementById("context");
  const said = document.getElementById("said");
  const rows = [...document.querySelectorAll("tr[data-point]")];
  const mib = (bytes) => `${Math.round(bytes / 1048576)} MiB`;

  function bar(card, terms) {
    const { svg, full, letter: room } = card;
    let end = 0;
    [card.held, ...terms].forEach((bytes, at) => {
      const from = (end / full) * 100;
      end += bytes;
      const wide = Math.max((end / full) * 100 - from, 0);
      const rect = svg.querySelector(`[data-term="${at}"]`);
      rect.setAttribute("x", `${from}%`);
      rect.setAttribute("width", `${wide}%`);
      const letter = svg.querySelector(`[data-letter="${at}"]`);
      letter.setAttribute("x", `${from + wide / 2}%`);
      letter.setAttribute("visibility", wide < room ? "hidden" : "visible");
    });
  }

  function show(at) {
    const point = data.points[at];
    let fits = true;
    data.cards.forEach((card, index) => {
      const terms = point.cards[index];
      const peak = terms.reduce((sum, bytes) => sum + bytes, 0);
      const spare = card.free - peak;
      fits = fits && spare >= 0;
      bar(card, terms);
      const words = document.getElementById(`words-${index}`);
      words.textContent = spare >= 0 ? `fits, ${mib(spare)} to spare, peak ${mib(peak)}` : `does not fit, ${mib(-spare)} too much, peak ${mib(peak)}`;
      words.className = spare >= 0 ? "yes" : "no";
      const x = card.left + (point.context / data.most) * card.across;
      for (const end of ["x1", "x2"]) document.getElementById(`mark-${index}`).setAttribute(end, x);
    });
    said.textContent = `-c ${point.context}: ${fits ? "fits" : "does not fit"}`;
    slider.setAttribute("aria-valuetext", `${point.context} tokens, ${fits ? "fits" : "does not fit"}`);
    rows.forEach((row) => row.classList.toggle("now", Number(row.dataset.point) === at));
  }

  data.cards.forEach((card, index) => { card.svg = document.getElementById(`bar-${index}`); });
  slider.max = data.points.length - 1;
  slider.value = data.asked;
  slider.addEventListener("input", () => show(Number(slider.value)));
  document.getElementById("slide").hidden = false;
  show(data.asked);
})();
