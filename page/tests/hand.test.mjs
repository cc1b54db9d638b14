// Actions by hand with what follows from them, and failures that outlive the daemon.
import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, live, open } from "./browser.mjs";
import { card, Daemon, model, until } from "./daemon.mjs";

const EVIL = `</details><img src=x onerror="document.title='owned'">\u202E`;
let browser;
before(async () => (browser = await launch()));
after(() => browser?.close());

const consequences = async (page) => {
  await page.waitForSelector('dialog[open] [data-foreseen="true"]');
  return page.$eval("dialog", (dialog) => dialog.textContent);
};

/** Opens the dialog of an action. A locator waits until the button stands still: rows move when a model's state changes. */
async function begin(page, label) {
  await page.locator(`[aria-label="${label}"]`).click();
  await page.waitForSelector("dialog[open]");
}

/** Carries it out. The dialog may still cover the page when the stream already tells what followed. */
async function confirm(page) {
  await page.locator("dialog .primary").click();
  await page.waitForSelector("dialog", { hidden: true });
}

async function act(page, label) {
  await begin(page, label);
  const text = await consequences(page);
  await confirm(page);
  return text;
}

test("yield, pin and load say what follows, and that is what happens", { timeout: 60_000 }, async () => {
  const config = model("a", "9GiB", "load_ms=20") + model("b", "10GiB", "load_ms=20") + model("c", "12GiB", "load_ms=20");
  const daemon = await Daemon.start({ cards: [card(1)], config: `[serve]\npatience = "0s"\n${config}` });
  try {
    await daemon.chat("a");
    await daemon.chat("b");
    const page = await open(browser, daemon.url);
    await live(page);
    const state = async (name, wanted) => until(`${name} ${wanted}`, async () => (await daemon.get("/api/status")).models.find((one) => one.name === name).state === wanted);
    // Pinned for a time by the list in the dialog.
    await begin(page, "Pin b");
    await page.select("dialog select", "600");
    await confirm(page);
    await page.waitForFunction(() => /pinned for (10 min|9 min)/.test(document.querySelector('[data-model="b"]').textContent));
    assert.match(await act(page, "Load c"), /fits after idle models have left\..*Must leave: a\./s);
    await state("a", "unloaded");
    await state("c", "ready");
    assert.match(await act(page, "Keep free … RTX 4090"), /Must leave: c\./);
    await state("c", "unloaded");
    const { cards } = await daemon.get("/api/status");
    assert.equal(cards[0].yield.bytes, 6 * 2 ** 30);
    await page.waitForFunction(() => /kept free for other programs 6\.00 GiB/.test(document.querySelector(".card .legend").textContent));
    assert.match(await act(page, "End RTX 4090"), /whole load line/);
    await until("it has ended", async () => (await daemon.get("/api/status")).cards[0].yield === undefined);
    // All of the card: models leave for it, and a pinned one stays.
    await daemon.chat("a");
    await begin(page, "Keep free … RTX 4090");
    await page.focus("dialog input");
    await page.keyboard.press("End");
    await page.waitForFunction(() => /Pinned models keep 10\.0 GiB of it/.test(document.querySelector("dialog").textContent));
    const said = await consequences(page);
    assert.match(said, /Must leave: a\./);
    await confirm(page);
    await state("a", "unloaded");
    await state("b", "ready");
    assert.deepEqual(page.troubles, []);
  } finally {
    await daemon.stop();
  }
});

test("failures are shown after a restart, with the engine's words only where they are opened", { timeout: 60_000 }, async () => {
  const daemon = await Daemon.start({ cards: [card(1)], config: model("weak", "1GiB", "fail=oom_at_load") });
  try {
    await daemon.chat("weak");
    const folder = join(daemon.folder, "state/plimsoll");
    const files = () => readdirSync(folder).filter((name) => name.endsWith(".json"));
    await until("it is kept", () => { try { return files().length === 1; } catch { return false; } });
    const file = join(folder, files()[0]);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    await daemon.end();
    const kept = JSON.parse(readFileSync(file, "utf8"));
    const [failure] = kept.failures;
    kept.failures.unshift({ ...failure, name: EVIL, time: failure.time - 90_000, reason: { code: "x", text: EVIL.repeat(300) }, hints: [{ text: EVIL }] });
    writeFileSync(file, JSON.stringify(kept));
    await daemon.run();
    const page = await open(browser, daemon.url);
    await live(page);
    await page.waitForSelector("[data-failure] code");
    const texts = await page.$$eval("[data-failure]", (all) => all.map((one) => one.textContent));
    assert.equal(texts.length, 2);
    assert.match(texts[0], /weak/);
    assert.match(texts[0], /out of memory|cudaMalloc|allocat/i);
    assert.match(texts[1], /1 d 1 h ago.*<img src=x/s);
    assert.equal(await page.title(), "Plimsoll");
    assert.equal(await page.$$eval("#page img", (all) => all.length), 0);
    const { marks } = await daemon.get("/api/status");
    assert.doesNotMatch(JSON.stringify(marks), /engine_said/, "a document for clients quotes no engine");
    assert.deepEqual(page.troubles, []);
  } finally {
    await daemon.stop();
  }
});
