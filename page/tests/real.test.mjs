// The page with real llama.cpp on the CPU: what it holds adds up, its speed is shown, and so is its end.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { bars, launch, live, open } from "./browser.mjs";
import { built, card, Daemon, pause, until } from "./daemon.mjs";

/** The engine that `plimsoll engine install` brings, which is there after the first time. */
function engine() {
  const said = execFileSync(built("plimsoll"), ["engine", "install"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  return said.trim().split("\n").at(-1);
}

test("real llama.cpp on the CPU adds up, has a speed, and its end is shown", { timeout: 180_000 }, async () => {
  const program = engine();
  const config = (own) => {
    const file = join(own.folder, "tiny.gguf");
    execFileSync(built("specimen"), ["tiny", file], { stdio: "ignore" });
    return ["one", "two"].map((name) => `[models.${name}]\nmodel = "${file}"\nprogram = "${program}"\nflags = "-c 512 -ngl 0"\n`).join("");
  };
  const daemon = await Daemon.start({ cards: [card(1)], config });
  const browser = await launch();
  try {
    const page = await open(browser, daemon.url);
    await live(page);
    const ask = (model) => daemon.post("/v1/completions", { model, prompt: "the ship", n_predict: 32, ignore_eos: true, stream: true }).then((answer) => answer.text());
    await Promise.all([ask("one"), ask("two")]);
    await page.waitForFunction(() => [...document.querySelectorAll('[data-label="Requests"]')].every((cell) => /tokens\/s/.test(cell.textContent)));
    // Each engine is a part of the host's memory.
    await page.waitForFunction(() => document.querySelectorAll(".card .model[data-bytes]").length >= 2);
    // Both answer, one of them leaves and comes back, and another program on the card grows.
    for (let sample = 0; sample < 200; sample += 1) {
      if (sample % 8 === 0) void ask(sample % 16 === 0 ? "one" : "two");
      if (sample % 50 === 20) void daemon.post("/models/unload", { model: "two" });
      if (sample % 20 === 0) await daemon.hold(() => [], [[0, process.pid, (1 + sample) * 2 ** 24]]);
      for (const bar of await bars(page)) {
        assert.equal(bar.parts.reduce((sum, part) => sum + part, 0), bar.used, `sample ${sample}`);
      }
      await pause(30);
    }
    await until("both are idle", async () => (await daemon.get("/api/status")).models.every((model) => model.in_flight === 0));
    process.kill((await daemon.engines()).get("one"), "SIGKILL");
    await page.waitForFunction(() => document.querySelector('[data-model="one"]').dataset.state !== "ready");
    await page.waitForSelector("[data-failure]");
    assert.deepEqual(page.troubles, []);
  } finally {
    await browser.close();
    await daemon.stop();
  }
});
