// The page that plans in the browser (cargo xtask site): its policy, its plans, its table, its looks.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, violations } from "./browser.mjs";

const { PLIMSOLL_BUILT, PLIMSOLL_MODEL, PLIMSOLL_SITE: folder, PLIMSOLL_HUB: hub, PLIMSOLL_SHOTS: shots } = process.env;
const html = readFileSync(join(folder, "index.html"));
const MANY = "user/many-GGUF";

let browser, server, origin;
before(async () => {
  browser = await launch();
  server = createServer((request, answer) => answer.writeHead(request.url === "/" ? 200 : 404, { "Content-Type": "text/html; charset=utf-8" }).end(request.url === "/" ? html : ""));
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  origin = `http://127.0.0.1:${server.address().port}`;
});
after(async () => {
  await browser?.close();
  server?.close();
});

/** Opens the page with a question; errors, refusals of its policy and requests are collected. */
async function open(question = {}, { width = 1280, height = 900, scheme = "light" } = {}) {
  const page = await browser.newPage();
  await page.setViewport({ width, height });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  page.troubles = [];
  page.asked = [];
  page.on("pageerror", (error) => page.troubles.push(String(error)));
  page.on("console", (message) => {
    if (["error", "warn"].includes(message.type())) page.troubles.push(message.text());
  });
  page.on("request", (request) => page.asked.push(request.url()));
  await page.goto(`${origin}/#${new URLSearchParams({ hub, ...question })}`);
  await page.waitForSelector("[data-ready]");
  return page;
}

const answered = (page) => page.waitForSelector("#answer .verdict");
const text = (page, selector) => page.$eval(selector, (element) => element.textContent);

async function shoot(page, name) {
  if (shots) await page.screenshot({ path: join(shots, `${name}.png`), fullPage: true });
}

async function accessible(page) {
  assert.deepEqual(await violations(page), []);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `the page is ${wide} pixels wider than its window`);
}

test("a repository of 40 quantisations is one table, read by its headers alone", { timeout: 120_000 }, async () => {
  const page = await open({ m: MANY, c: "16384" });
  await page.waitForFunction(() => document.querySelectorAll("#rows tr").length === 40 && /40 of 40/.test(document.querySelector("#quants-words").textContent), { timeout: 100_000 });
  const words = await text(page, "#quants-words");
  console.log(words);
  const [, read, requests] = /: ([\d.]+) MiB in (\d+) requests/.exec(words);
  assert.ok(Number(read) < 12 && Number(requests) < 200, words);
  // Those that fit come first.
  const verdicts = await page.$$eval("#rows tr td:last-child", (cells) => cells.map((cell) => cell.textContent));
  assert.deepEqual(verdicts, [...verdicts].sort((a, b) => (a === "fits" ? 0 : 1) - (b === "fits" ? 0 : 1)));
  assert.ok(verdicts.every((verdict) => ["fits", "does not fit"].includes(verdict)), String(verdicts));
  await page.click('[data-quant="Q8_0_S"]');
  await page.waitForFunction(() => document.querySelector("#name").value.endsWith(":Q8_0_S"));
  assert.match(await text(page, "#paste"), /^llama-server -hf user\/many-GGUF:Q8_0_S -c 16384$/);
  await accessible(page);
  await shoot(page, "table");
  const places = new Set(page.asked.map((url) => new URL(url).hostname));
  assert.deepEqual([...places].filter((place) => place), ["127.0.0.1"]);
  assert.deepEqual(page.troubles, []);
});

test("a file is planned within 200 ms, and without a network", { timeout: 60_000 }, async () => {
  const page = await open();
  await page.setOfflineMode(true);
  const before = page.asked.length;
  await page.evaluate(() => {
    new MutationObserver(() => (window.shown ??= performance.now())).observe(document.querySelector("#answer"), { childList: true });
    document.querySelector("#files").addEventListener("change", () => (window.given = performance.now()), { capture: true });
  });
  await (await page.$("#files")).uploadFile(PLIMSOLL_MODEL);
  await answered(page);
  const took = await page.evaluate(() => window.shown - window.given);
  console.log(`first plan after ${took.toFixed(0)} ms`);
  assert.ok(took < 200, `${took} ms`);
  // Another context is planned at once, and advice is applied.
  await page.type("#context", "262144");
  await page.waitForFunction(() => /does not fit/.test(document.querySelector("#answer .verdict").textContent));
  await page.click(".hints button");
  await page.waitForFunction(() => !/does not fit/.test(document.querySelector("#answer .verdict").textContent));
  assert.equal(page.asked.length, before, "nothing is asked for");
  assert.deepEqual(page.troubles, []);
});

test("the JSON is that of the command line", { timeout: 60_000 }, async () => {
  const flags = ["-c", "24576", "-np", "2", "-ctk", "q8_0", "-ctv", "q8_0", "-b", "1024", "-ub", "256", "-fa", "on"];
  const question = { c: "24576", np: "2", ctk: "q8_0", b: "1024", ub: "256", flags: "-fa on", card: "2x3060", host: "64GiB" };
  const page = await open(question);
  await page.evaluate(() => Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => void (window.copied = text) } }));
  await (await page.$("#files")).uploadFile(PLIMSOLL_MODEL);
  await answered(page);
  await page.click("#copy-json");
  await page.waitForFunction(() => window.copied);
  const program = join(PLIMSOLL_BUILT, "plimsoll");
  const words = ["plan", PLIMSOLL_MODEL, "--formulas", "--json", "--card", "2x3060", "--host", "64GiB", "--", ...flags];
  const printed = spawnSync(program, words, { encoding: "utf8", env: { ...process.env, HOME: tmpdir(), XDG_CONFIG_HOME: tmpdir() } });
  // What the browser does not know: which instructions this machine's processor has, and its measured bus.
  assert.equal(await page.evaluate(() => window.copied), printed.stdout, printed.stderr);
  assert.deepEqual(page.troubles, []);
});

test("a link carries the question, and a projector is planned with its model", { timeout: 60_000 }, async () => {
  const page = await open({ m: "user/vision-GGUF", c: "8192", card: "4090" });
  await answered(page);
  await page.waitForSelector("#projects:not([hidden])");
  const peak = () => text(page, "#words-0");
  const beside = await peak();
  await page.click("#projector");
  await page.waitForFunction((said) => document.querySelector("#words-0").textContent !== said, {}, beside);
  const again = await open(Object.fromEntries(new URLSearchParams(new URL(page.url()).hash.slice(1))));
  await answered(again);
  assert.equal(await text(again, "#words-0"), await peak());
  assert.match(await text(again, "#paste"), /--no-mmproj/);
  assert.deepEqual(again.troubles, []);
});

test("what cannot be read says so, and what remains to do", { timeout: 60_000 }, async () => {
  for (const [name, reason] of [["user/gated-GGUF", /asks for a token.*\nhint: /s], ["user/none-GGUF", /does not have it/], ["no name", /names no model/], ["user/many-GGUF:Q9", /no file of quantisation `Q9`/]]) {
    const page = await open({ m: name });
    await page.waitForSelector("#progress.no");
    assert.match(await text(page, "#progress"), reason);
    await page.close();
  }
  const page = await open();
  await page.type("#card", "309O");
  await page.click("#add");
  await page.waitForFunction(() => /not a known card/.test(document.querySelector("#card-error").textContent));
  await accessible(page);
});

test("on a phone, in the dark, by the keyboard", { timeout: 60_000 }, async () => {
  for (const [width, scheme] of [[390, "light"], [390, "dark"], [1280, "dark"]]) {
    const page = await open({ m: MANY, c: "32768" }, { width, height: 844, scheme });
    await page.waitForFunction(() => /40 of 40/.test(document.querySelector("#quants-words").textContent), { timeout: 50_000 });
    await accessible(page);
    await shoot(page, `page-${width}-${scheme}`);
    assert.deepEqual(page.troubles, []);
    await page.close();
  }
  const page = await open();
  await page.focus("#name");
  await page.keyboard.type(MANY);
  await page.keyboard.press("Enter");
  await answered(page);
  await page.focus("#card");
  await page.keyboard.type("4090");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#words-1");
  await page.focus("#slider");
  await page.keyboard.press("End");
  await page.waitForFunction(() => document.querySelector("#context").value === "1048576");
});
