// Debian's Chromium, and what the tests read of the page.
import puppeteer from "puppeteer-core";
import { existsSync } from "node:fs";

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
