// Debian's Chromium, and what the tests read of the page.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import puppeteer from "puppeteer-core";

const PLACES = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

export function chromium() {
  return PLACES.find((path) => path && existsSync(path));
}

export function launch(args = []) {
  return puppeteer.launch({
    executablePath: chromium(),
    headless: true,
    // A test's machine is often a container, whose root may not make namespaces.
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars", ...args],
  });
}

/** Opens the page; errors of its scripts and of its policy are collected. */
export async function open(browser, url, { width = 1280, height = 900 } = {}) {
  const page = await browser.newPage();
  await page.setViewport({ width, height });
  page.troubles = [];
  page.on("pageerror", (error) => page.troubles.push(String(error)));
  page.on("console", (message) => {
    if (["error", "warn"].includes(message.type())) page.troubles.push(message.text());
  });
  page.on("request", (request) => {
    if (!request.url().startsWith(new URL(url).origin)) page.troubles.push(`asks ${request.url()}`);
  });
  await page.goto(`${url}/ui`);
  return page;
}

export async function live(page) {
  await page.waitForSelector('[data-connection="live"]');
}

/** Figures of each bar: in use, and the sum of the parts. */
export function bars(page) {
  return page.$$eval(".bar", (all) =>
    all.map((bar) => ({
      used: Number(bar.dataset.used),
      parts: [...bar.querySelectorAll("[data-bytes]")].map((part) => Number(part.dataset.bytes)),
      width: [...bar.querySelectorAll("[data-bytes]")].reduce((sum, part) => sum + part.getBoundingClientRect().width, 0),
      whole: bar.getBoundingClientRect().width,
    })),
  );
}

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** What axe finds. */
export async function violations(page) {
  // Runs in a world of its own, so that the page's policy stays as it is.
  const session = await page.createCDPSession();
  const { frameTree } = await session.send("Page.getFrameTree");
  const { executionContextId: contextId } = await session.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
  const run = (expression) => session.send("Runtime.evaluate", { expression, contextId, awaitPromise: true, returnByValue: true });
  await run(axe);
  const { result } = await run(
    "axe.run().then((found) => found.violations.map((one) => one.id + ': ' + one.nodes.slice(0, 3).map((node) => node.html + ' ' + node.failureSummary).join(' | ')))",
  );
  await session.detach();
  assert.ok(Array.isArray(result.value), "axe ran");
  return result.value;
}
