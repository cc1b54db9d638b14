// Pictures of the page in each look: wide and narrow, light and dark, forced colours, a large machine.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const FOLDER = process.env.PLIMSOLL_SHOTS ?? fileURLToPath(new URL("../../target/page-shots/", import.meta.url));

const LOOKS = [
  { name: "wide", width: 1440, height: 1000, scheme: "light" },
  { name: "dark", width: 1440, height: 1000, scheme: "dark" },
  { name: "phone", width: 390, height: 844, scheme: "light" },
  { name: "narrow", width: 375, height: 812, scheme: "light" },
  { name: "narrow-dark", width: 375, height: 812, scheme: "dark" },
  { name: "forced", width: 1280, height: 900, scheme: "dark", forced: "active" },
];

/** Takes a picture in each look; `only` names some of them. */
export async function shoot(page, prefix, only = LOOKS.map((look) => look.name)) {
  mkdirSync(FOLDER, { recursive: true });
  const session = await page.createCDPSession();
  for (const look of LOOKS.filter((one) => only.includes(one.name))) {
    await session.send("Emulation.setEmulatedMedia", {
      features: [
        { name: "prefers-color-scheme", value: look.scheme },
        { name: "forced-colors", value: look.forced ?? "none" },
        { name: "prefers-reduced-motion", value: "reduce" },
      ],
    });
    // The whole page at once: what is outside the window is not drawn.
    await page.setViewport({ width: look.width, height: look.height });
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    await page.setViewport({ width: look.width, height: Math.max(look.height, Math.min(height, 6000)) });
    const isDrawn = () => [...document.querySelectorAll(".chart")].every((chart) => chart.querySelector("canvas"));
    await page.waitForFunction(isDrawn, { timeout: 10_000 }).catch(() => undefined);
    await new Promise((done) => setTimeout(done, 400));
    await page.screenshot({ path: join(FOLDER, `${prefix}-${look.name}.png`), fullPage: true });
  }
  await session.send("Emulation.setEmulatedMedia", { features: [] });
}

/** Writes the pictures of the documents, if PLIMSOLL_PICTURES names their folder. */
export async function picture(page, name, { width, height, scheme }) {
  const folder = process.env.PLIMSOLL_PICTURES;
  if (!folder) return;
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.setViewport({ width, height });
  await page.evaluate(() => scrollTo(0, 0));
  await new Promise((done) => setTimeout(done, 600));
  await page.screenshot({ path: join(folder, name), type: "webp", quality: 82 });
}
