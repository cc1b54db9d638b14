// An engine's own page: it works at its own origin, and below the operator's it can read, order, store and install nothing.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { launch } from "./browser.mjs";
import { card, Daemon } from "./daemon.mjs";

const engine = fileURLToPath(new URL("engine.mjs", import.meta.url));
const config = `[models.page]\ncmd = ${JSON.stringify(`${process.execPath} ${engine} \${PORT}`)}\nmemory = "64MiB"\n`;

/** What the script of the engine's page saw at this address. */
async function seen(browser, operator, address) {
  const page = await browser.newPage();
  await page.goto(`${address}?operator=${encodeURIComponent(operator)}`);
  await page.waitForFunction(() => document.title === "done");
  const result = await page.evaluate(() => window.seen);
  await page.close();
  return result;
}

/** Names of all cookies that the browser holds, of any origin. */
async function cookies(browser) {
  return (await browser.cookies()).map((cookie) => `${cookie.domain} ${cookie.name}`);
}

test("an engine's page works at its own origin and has none below the operator's", { timeout: 60_000 }, async () => {
  const daemon = await Daemon.start({ cards: [card(1)], config });
  const browser = await launch();
  try {
    // One name for both pages: the operator's own origin is `localhost`, as a person types it.
    const operator = `http://localhost:${daemon.port}`;
    const below = await seen(browser, operator, `${operator}/upstream/page/`);
    assert.equal(below.origin, "null");
    for (const [what, result] of Object.entries(below).filter(([what]) => !["origin", "order"].includes(what))) {
      assert.match(result, /^(TypeError|SecurityError|\{"error":.*)$/s, `${what}: ${result}`);
    }
    assert.deepEqual(await cookies(browser), []);
    assert.equal((await daemon.engines()).has("page"), true, "the order was refused");

    const own = `http://page.engine.localhost:${daemon.port}`;
    const above = await seen(browser, operator, `${own}/`);
    assert.deepEqual([above.origin, above.own, above.storage], [own, '{"engine":true}', "1"]);
    assert.equal(above.worker, `${own}/`);
    assert.deepEqual([above.api, above.metrics], ["TypeError", "TypeError"]);
    assert.equal((await daemon.engines()).has("page"), true, "the order was refused");

    // Whatever the page left behind, the operator's origin has none of it.
    const page = await browser.newPage();
    await page.goto(`${operator}/ui`);
    const left = await page.evaluate(async () => [document.cookie, localStorage.length, (await navigator.serviceWorker.getRegistrations()).length]);
    assert.deepEqual(left, ["", 0, 0]);
    assert.deepEqual((await cookies(browser)).filter((cookie) => !cookie.startsWith("page.engine.localhost ")), []);
  } finally {
    await browser.close();
    await daemon.stop();
  }
});
