// Open WebUI in Chromium, as a user has it: the list of models, a chat whose answer arrives in parts, and a change of the model.
// usage: node open_webui.mjs PUPPETEER URL MODEL… ; prints what was seen as JSON in the last line.
import { pathToFileURL } from "node:url";

const [library, url, ...models] = process.argv.slice(2);
const { default: puppeteer } = await import(pathToFileURL(library));
const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-background-networking"],
});

/** The page with no dialog in front of it. */
async function open() {
  const page = await browser.newPage();
  page.setDefaultTimeout(120_000);
  await page.setViewport({ width: 1280, height: 900 });
  await page.goto(url, { waitUntil: "domcontentloaded" });
  await page.waitForSelector("#chat-input");
  await page.waitForSelector('[role="dialog"], .modal', { timeout: 5_000 }).then(() => page.keyboard.press("Escape"), () => {});
  return page;
}

const picker = '[id^="model-selector-"][id$="-button"]';
const entries = '[role="option"], button[data-value]';

/** Opens the list of models and chooses one; returns the list. */
async function choose(page, model) {
  await page.click(picker);
  await page.waitForSelector(entries);
  const listed = await page.$$eval(entries, (all) => all.map((one) => one.dataset.value ?? one.innerText.split("\n")[0].trim()));
  await (await page.$$(entries))[listed.indexOf(model)].click();
  await page.waitForFunction((at, model) => document.querySelector(at)?.ariaLabel?.endsWith(model), {}, picker, model);
  return listed;
}

/** Asks, and collects the answer's growing length until it is whole. */
async function ask(page, question) {
  const before = (await page.$$(".chat-assistant")).length;
  await page.click("#chat-input");
  await page.keyboard.type(question);
  await page.keyboard.press("Enter");
  const lengths = [];
  for (const until = Date.now() + 120_000; Date.now() < until; await new Promise((done) => setTimeout(done, 30))) {
    const { length, whole } = await page.evaluate((before) => {
      const answer = [...document.querySelectorAll(".chat-assistant")][before];
      const whole = answer?.closest('[id^="message-"]')?.querySelector('.copy-response-button, [aria-label="Copy"]');
      return { length: answer?.innerText.trim().length ?? 0, whole: Boolean(whole) };
    }, before);
    if (length !== lengths.at(-1)) lengths.push(length);
    if (whole && length > 0) return { length, parts: lengths.filter((one) => one > 0).length };
  }
  throw new Error(`no whole answer to "${question}": ${lengths}; ${await page.evaluate(() => document.body.innerText)}`);
}

const seen = {};
try {
  const page = await open();
  for (const model of models) {
    seen.listed = await choose(page, model);
    seen[model] = await ask(page, `Tell me of ${model}.`);
  }
} finally {
  await browser.close();
}
console.log(JSON.stringify(seen));
