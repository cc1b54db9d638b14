// The bar's parts add up to the driver's figure, through swaps, growth and a foreign process.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { test } from "node:test";
import { bars, launch, live, open } from "./browser.mjs";
import { card, Daemon, GIB, model, pause, planned, until } from "./daemon.mjs";

test("the parts add up in 200 samples of swaps, growth and a foreign process", { timeout: 120_000 }, async () => {
  const sizes = new Map([["a", 9], ["b", 10], ["c", 12]]);
  const config = [...sizes].map(([name, gib]) => model(name, `${gib}GiB`, "load_ms=30", 'hold = "0s"')).join("");
  const daemon = await Daemon.start({ cards: [card(1)], config: `[serve]\npatience = "0s"\n${config}` });
  const other = spawn("sleep", ["1000"], { stdio: "ignore" });
  const browser = await launch();
  try {
    const page = await open(browser, daemon.url);
    await live(page);
    let growth = 0;
    let done = false;
    const shown = new Set([0]);
    const drive = (async () => {
      for (let step = 0; !done; step += 1) {
        daemon.cards[0].foreign = (step % 3) * 0.3 * GIB;
        growth = (growth + 0.13 * GIB) % GIB;
        await daemon.hold((name) => [[0, sizes.get(name) * GIB + growth]], [[0, other.pid, (1 + (step % 4) * 0.5) * GIB]]);
        shown.add(daemon.used(0));
        if (step % 4 === 0) await daemon.chat([...sizes.keys()][(step / 4) % 3]);
        await pause(150);
      }
    })();
    const kinds = new Set();
    let samples = 0;
    for (; samples < 200; samples += 1) {
      const [bar] = await bars(page);
      const total = bar.parts.reduce((sum, part) => sum + part, 0);
      assert.equal(total, bar.used, `sample ${samples}`);
      assert.ok(shown.has(bar.used), `the driver never said ${bar.used}`);
      const width = (bar.used / daemon.cards[0].total) * bar.whole;
      assert.ok(Math.abs(bar.width - width) < 4, `drawn ${bar.width} of ${width} px`);
      kinds.add(bar.parts.length);
      await pause(55);
    }
    done = true;
    await drive;
    const { marks } = await daemon.get("/api/status");
    assert.ok(marks.filter((mark) => mark.kind === "stop").length >= 3, "models were swapped meanwhile");
    assert.ok(kinds.size >= 2, "holders came and went");
    assert.deepEqual(page.troubles, []);
  } finally {
    other.kill();
    await browser.close();
    await daemon.stop();
  }
});

test("terms of a planned model are shown beside its measured memory", { timeout: 60_000 }, async () => {
  const daemon = await Daemon.start({
    cards: [card(1)],
    config: (own) => planned(own, "planned", "l8", "-c 4096 -ngl 99"),
  });
  try {
    await daemon.chat("planned");
    await daemon.hold(() => [[0, 20 * GIB]]);
    const { found: part } = await until("a part of the model", async () => {
      const { cards } = await daemon.get("/api/status");
      return cards[0].parts?.find((candidate) => candidate.name === "planned");
    });
    const terms = new Map(part.terms);
    for (const term of ["weights", "kv", "compute", "context", "growth"]) assert.ok(terms.get(term) > 0, term);
    assert.equal([...terms.values()].reduce((sum, bytes) => sum + bytes, 0), part.bytes);
  } finally {
    await daemon.stop();
  }
});

test("the depth of a model whose memory grows with its prompts is shown", { timeout: 60_000 }, async () => {
  const flags = "-c 65536 -np 4 -ctk q8_0 -ctv q8_0 -fa on -ngl all";
  const daemon = await Daemon.start({ cards: [card(1)], config: (own) => planned(own, "deep", "l8", flags) });
  const browser = await launch();
  try {
    const page = await open(browser, daemon.url);
    await live(page);
    await daemon.chat("deep");
    await page.waitForFunction(() => /depth [1-9]\d* of 65536/.test(document.querySelector('[data-model="deep"]').textContent), { timeout: 20_000 });
    assert.deepEqual(page.troubles, []);
  } finally {
    await browser.close();
    await daemon.stop();
  }
});
