// Flags of a model on the page: its plan moves beside the text, a save keeps comments, an undo brings them back.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, live, open, violations } from "./browser.mjs";
import { card, Daemon, GIB, model, planned, until } from "./daemon.mjs";
import { shoot } from "./shots.mjs";

let browser;
before(async () => (browser = await launch()));
after(() => browser?.close());

const plan = (page) => page.$eval("dialog [data-fits]", (shown) => shown.dataset.fits);
const fits = (page, verdict) => page.waitForFunction((wanted) => document.querySelector("dialog [data-fits]")?.dataset.fits === wanted, {}, verdict);

async function write(page, text) {
  await page.$eval("dialog textarea", (field) => field.select());
  await page.type("dialog textarea", text);
}

test("flags are changed with the plan beside them, saved with comments, and undone", { timeout: 90_000 }, async () => {
  const config = (own) => `# mine\n${planned(own, "llama", "l8", "-c 4096 -ngl 99")}# end\n${model("other", "5GiB", "load_ms=20", 'hold = "0s"')}`;
  const daemon = await Daemon.start({ cards: [card(1, "RTX 4080", 16 * GIB)], config });
  const file = join(daemon.folder, "plimsoll.toml");
  const before = readFileSync(file, "utf8");
  try {
    await daemon.chat("other");
    const page = await open(browser, daemon.url);
    await live(page);
    await page.locator('[aria-label="Flags of llama"]').click();
    await fits(page, "now");
    const bytes = () => page.$eval("dialog .plan", (bar) => Number(bar.dataset.planned));
    const small = await bytes();
    await write(page, "-c 49152 -ngl 99");
    await fits(page, "after");
    assert.ok((await bytes()) > small);
    assert.match(await page.$eval("dialog", (shown) => shown.textContent), /Would leave: other/);
    await shoot(page, "flags-fit", ["wide", "dark", "phone"]);
    await write(page, "-c 131072 -ngl 99");
    await fits(page, "never");
    assert.deepEqual(await violations(page), []);
    await shoot(page, "flags", ["wide", "dark", "phone"]);
    // A hint of the refusal puts its flags into the text.
    await page.locator('dialog [aria-label^="Try -c"]').click();
    await page.waitForFunction(() => document.querySelector("dialog textarea").value !== "-c 131072 -ngl 99");
    await page.waitForFunction(() => document.querySelector("dialog [data-fits]").dataset.fits !== "never");
    // What does not parse names the file, the line and the mistake.
    await write(page, "-c 8192 --no-such-flag");
    await page.waitForFunction(() => /plimsoll\.toml:\d+: .*--no-such-flag/.test(document.querySelector("dialog .bad[role=alert]").textContent));
    assert.equal(await page.$eval("dialog .primary", (button) => button.disabled), true);
    await write(page, "-c 8192 -ngl 99 -np 2");
    await fits(page, "now");
    await page.locator("dialog .primary").click();
    await page.waitForFunction(() => /Saved\. 1 model changed: llama/.test(document.querySelector("dialog .note").textContent));
    assert.equal(readFileSync(file, "utf8"), before.replace("-c 4096 -ngl 99", "-c 8192 -ngl 99 -np 2"));
    assert.equal(await page.evaluate(() => document.activeElement.tagName), "TEXTAREA", "the keyboard is not lost");
    assert.match(daemon.talk, /audit change flags llama: no key is required/);
    assert.deepEqual(await violations(page), []);
    const undo = async () => {
      const [button] = await page.$$("dialog ::-p-text(Undo the last save)");
      await button.click();
    };
    await undo();
    await page.waitForFunction(() => /Undone\./.test(document.querySelector("dialog .note").textContent));
    assert.equal(readFileSync(file, "utf8"), before);
    assert.equal(await page.$eval("dialog textarea", (field) => field.value), "-c 4096 -ngl 99");
    // An editor was faster: the text stays, and the file is read again.
    await write(page, "-c 2048 -ngl 99");
    await fits(page, "now");
    writeFileSync(file, `${before}# by hand\n`);
    await page.locator("dialog .primary").click();
    await page.waitForFunction(() => /has changed meanwhile/.test(document.querySelector("dialog .bad[role=alert]").textContent));
    await page.locator("dialog ::-p-text(Read the file again)").click();
    await page.waitForFunction(() => document.querySelector("dialog .bad[role=alert]").textContent === "");
    assert.equal(await page.$eval("dialog textarea", (field) => field.value), "-c 2048 -ngl 99");
    await page.locator("dialog .primary").click();
    await until("it is saved", () => readFileSync(file, "utf8") === `${before.replace("-c 4096", "-c 2048")}# by hand\n`);
    assert.deepEqual(page.troubles.filter((text) => !/40[09]/.test(text)), []);
  } finally {
    await daemon.stop();
  }
});

test("the button at a refusal opens the flags that help", { timeout: 60_000 }, async () => {
  const config = (own) => planned(own, "deep", "l8", "-c 131072 -ngl 99");
  const daemon = await Daemon.start({ cards: [card(1, "RTX 3060", 12 * GIB)], config });
  try {
    assert.equal((await daemon.chat("deep")).status, 413);
    const page = await open(browser, daemon.url);
    await live(page);
    await page.locator('[data-failure] [aria-label^="Try -c"]').click();
    await page.waitForSelector("dialog textarea");
    assert.match(await page.$eval("dialog textarea", (field) => field.value), /^-c \d+ -ngl 99.*/);
    await page.waitForFunction(() => ["now", "after"].includes(document.querySelector("dialog [data-fits]")?.dataset.fits));
    await page.keyboard.press("Escape");
    await page.waitForSelector("dialog", { hidden: true });
    assert.deepEqual(page.troubles, []);
  } finally {
    await daemon.stop();
  }
});
