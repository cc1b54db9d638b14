// Fifty models: a filter, groups, one colour a model, and a phone of 390 px without a page of idle names.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, live, open, violations } from "./browser.mjs";
import { card, Daemon, GIB, model } from "./daemon.mjs";
import { holdClaims } from "./scenes.mjs";
import { shoot } from "./shots.mjs";

let browser, daemon;
before(async () => {
  const names = Array.from({ length: 50 }, (_, at) => `model-${String(at).padStart(2, "0")}`);
  const config = names.map((name, at) => model(name, `${2 + (at % 5) * 2}GiB`, "load_ms=10")).join("");
  daemon = await Daemon.start({ cards: [card(1), card(2)], config });
  for (const name of ["model-01", "model-07", "model-13"]) await daemon.chat(name);
  await holdClaims(daemon, 0.9);
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

const rows = (page) => page.$$eval("[data-model]", (all) => all.map((row) => row.dataset.model));

test("a filter and groups leave what is looked for", { timeout: 60_000 }, async () => {
  const page = await open(browser, daemon.url, { width: 1400 });
  await live(page);
  assert.equal((await rows(page)).length, 50);
  await page.type("input[type=search]", "-1 READY");
  await page.waitForFunction(() => document.querySelectorAll("[data-model]").length === 1);
  assert.deepEqual(await rows(page), ["model-13"]);
  await page.$eval("input[type=search]", (field) => field.select());
  await page.type("input[type=search]", "nothing");
  await page.waitForFunction(() => /No model fits the filter/.test(document.body.textContent));
  assert.deepEqual(await violations(page), []);
  await page.$eval("input[type=search]", (field) => field.select());
  await page.keyboard.press("Backspace");
  await page.select("p[role=search] select", "card");
  await page.waitForFunction(() => /on no card/.test(document.querySelector(".group:last-of-type, tbody:last-child .group").textContent));
  // A group closes and opens by the keyboard.
  await page.focus("tbody:last-child .group button");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll("[data-model]").length === 3);
  assert.equal(await page.$eval("tbody:last-child .group button", (button) => button.ariaExpanded), "false");
  assert.deepEqual(await violations(page), []);
  await shoot(page, "many", ["wide", "dark"]);
  assert.deepEqual(page.troubles, []);
});

test("a model has one colour in bar, legend and table, and each unloaded one its planned size", { timeout: 60_000 }, async () => {
  const page = await open(browser, daemon.url, { width: 1400 });
  await live(page);
  await page.waitForSelector(".bar .model");
  const colours = await page.evaluate(() => {
    const colour = (node) => node && getComputedStyle(node).backgroundColor;
    return ["model-01", "model-07", "model-13"].map((name) => {
      const bar = [...document.querySelectorAll(".bar .model")].find((part) => part.title.startsWith(name));
      const legend = [...document.querySelectorAll(".legend li")].find((line) => line.textContent.includes(name));
      const row = document.querySelector(`[data-model="${name}"]`);
      return [bar, legend.querySelector(".key"), row.querySelector(".key"), row.querySelector(".gauge i")].map(colour);
    });
  });
  for (const all of colours) assert.equal(new Set(all).size, 1, JSON.stringify(colours));
  const unloaded = await page.$$eval('[data-state="unloaded"] [data-label="Memory"]', (all) => all.map((cell) => cell.textContent));
  assert.ok(unloaded.length === 47 && unloaded.every((text) => /^\d.* GiB planned$/.test(text)), unloaded.join());
  const legend = await page.$eval(".legend.parts", (list) => list.textContent);
  assert.match(legend, /claimed, not yet used/);
  // What is claimed is not free.
  const free = await page.$eval(".card .legend", (list) => list.textContent);
  const { cards } = await daemon.get("/api/status");
  const ahead = cards[0].holders.reduce((sum, one) => sum + one.claim - one.measured, 0);
  const left = (cards[0].total - cards[0].used - ahead) / GIB;
  assert.match(free, new RegExp(`free ${left.toFixed(left < 10 ? 2 : 1)} GiB beside`));
});

test("a phone of 390 px shows what runs, and the rest on demand", { timeout: 60_000 }, async () => {
  const page = await open(browser, daemon.url, { width: 390, height: 844 });
  await live(page);
  await page.waitForSelector("[data-model]");
  assert.equal((await rows(page)).length, 3);
  const size = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.scrollHeight]);
  assert.ok(size[0] <= 390 && size[1] < 2400, size.join());
  const small = await page.$$eval("button", (all) => all.map((one) => one.getBoundingClientRect()).filter((box) => box.height > 0 && box.height < 24).length);
  assert.equal(small, 0, "each button can be touched");
  assert.deepEqual(await violations(page), []);
  await shoot(page, "many", ["phone"]);
  await page.locator(".group button[aria-expanded=false]").click();
  await page.waitForFunction(() => document.querySelectorAll("[data-model]").length === 50);
  assert.ok((await page.evaluate(() => document.documentElement.scrollWidth)) <= 390);
  assert.deepEqual(await violations(page), []);
});
