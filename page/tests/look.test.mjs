// Looks of the page: no violation of axe, the keyboard alone does everything, pictures of each look.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, live, open, violations } from "./browser.mjs";
import { GIB, pause, until } from "./daemon.mjs";
import { holdClaims, usual } from "./scenes.mjs";
import { picture, shoot } from "./shots.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser?.close());

/** Plans the waiting model with a long context by the keyboard: the slider changes the answer. */
async function whatIf(page) {
  await page.focus("summary:has(#what-if)");
  await page.keyboard.press("Enter");
  await page.waitForSelector("[data-fits]");
  await page.select("section[aria-labelledby=what-if] select", "qwen3-4b");
  await page.waitForFunction(() => document.querySelector("[data-fits]").textContent.includes("kv"));
  await page.focus("section[aria-labelledby=what-if] input");
  await page.keyboard.press("End");
  await page.waitForFunction(() => /never fits/.test(document.querySelector("[data-fits]").textContent));
  for (let step = 0; step < 3; step += 1) await page.keyboard.press("ArrowLeft");
  await page.waitForFunction(() => /planned/.test(document.querySelector("[data-fits]").textContent));
}

test("a usual machine at work", { timeout: 120_000 }, async () => {
  const daemon = await usual();
  try {
    for (const name of ["broken-quant", "llama-70b", "gpt-oss-20b", "llama-3.1-8b", "nomic-embed"]) await daemon.chat(name);
    daemon.cards[1].foreign = 0.2 * GIB;
    const hold = () => holdClaims(daemon, 0.97, [[0, daemon.other.pid, 1.4 * GIB]]);
    await hold();
    await pause(1300);
    void daemon.chat("mistral-small").catch(() => undefined);
    await until("it loads", async () => (await daemon.get("/api/status")).models.some((one) => one.state === "loading"));
    await hold();
    void daemon.post("/v1/chat/completions", { model: "mistral-small", messages: [] }).catch(() => undefined);
    const page = await open(browser, daemon.url, { width: 1440 });
    await live(page);
    await pause(1500);
    await page.click("summary h2#logs");
    await pause(400);
    await picture(page, "page.webp", { width: 1280, height: 800, scheme: "light" });
    await picture(page, "page-dark.webp", { width: 1280, height: 560, scheme: "dark" });
    await whatIf(page);
    assert.deepEqual(await violations(page), []);
    await shoot(page, "usual");
    assert.deepEqual(page.troubles, []);
  } finally {
    daemon.other.kill();
    await daemon.stop();
  }
});

test("the keyboard alone loads, pins and unloads, each after its consequence", { timeout: 60_000 }, async () => {
  const daemon = await usual();
  try {
    const page = await open(browser, daemon.url);
    await live(page);
    const act = async (label, expected) => {
      // Tab until the button has the focus, as a user does.
      for (let step = 0; step < 120; step += 1) {
        await page.keyboard.press("Tab");
        if ((await page.evaluate(() => document.activeElement.getAttribute("aria-label"))) === label) break;
      }
      await page.keyboard.press("Enter");
      await page.waitForSelector("dialog[open]");
      assert.match(await page.$eval("dialog", (dialog) => dialog.textContent), expected);
      assert.deepEqual(await violations(page), []);
      await page.keyboard.press("Enter");
      await page.waitForSelector("dialog", { hidden: true });
    };
    const state = (check) => until("the state", async () => check((await daemon.get("/api/status")).models.find((one) => one.name === "nomic-embed")));
    await act("Load nomic-embed", /Not claimed by any model/);
    await state((model) => model.state === "ready");
    await page.waitForSelector('[aria-label="Unload nomic-embed"]');
    await act("Pin nomic-embed", /not stopped for another model/);
    await state((model) => model.pinned);
    await page.waitForSelector('[aria-label="Unpin nomic-embed"]');
    await act("Unload nomic-embed", /No request is being answered/);
    await state((model) => model.state === "unloaded");
    // Escape leaves everything as it is.
    await page.waitForSelector('[aria-label="Load nomic-embed"]');
    await page.focus('[aria-label="Load nomic-embed"]');
    await page.keyboard.press("Enter");
    await page.waitForSelector("dialog[open]");
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog", { hidden: true });
    await state((model) => model.state === "unloaded");
  } finally {
    daemon.other.kill();
    await daemon.stop();
  }
});
