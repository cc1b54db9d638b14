// Downloads: progress while the parts come, a cancellation by hand, and a failure with its cause.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, live, open } from "./browser.mjs";
import { card, Daemon, model, planned, until } from "./daemon.mjs";

const SIZE = 20 * 2 ** 20;
let browser;
before(async () => (browser = await launch()));
after(() => browser?.close());

/** A server of one file, in ranges; parts beyond the header wait until they are let go. */
async function hub(file) {
  const state = { tag: "one", held: [], lets: 0 };
  const bytes = Buffer.concat([file, Buffer.alloc(SIZE - file.length)]);
  const server = createServer(async (request, answer) => {
    const [from, to] = request.headers.range.slice(6).split("-").map(Number);
    const end = Math.min(to, SIZE - 1);
    if (end - from > 2 ** 20 && state.lets-- <= 0) await new Promise((go) => state.held.push(go));
    const headers = { ETag: `"${state.tag}"`, "Content-Range": `bytes ${from}-${end}/${SIZE}`, "Content-Length": end + 1 - from };
    answer.writeHead(206, headers).end(bytes.subarray(from, end + 1));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { state, close, url: `http://127.0.0.1:${server.address().port}/big-Q8_0.gguf` };
}

test("a download shows its progress, is cancelled by hand, and says why it failed", { timeout: 60_000 }, async () => {
  const config = (own) => `[serve]\ndownloads = "${join(own.folder, "downloads")}"\n${planned(own, "tiny", "tiny", "-c 2048")}${model("b", "1GiB")}`;
  const daemon = await Daemon.start({ cards: [card(1)], config });
  const from = await hub(readFileSync(join(daemon.folder, "tiny.gguf")));
  try {
    const page = await open(browser, daemon.url);
    await live(page);
    const order = () => fetch(`${daemon.url}/models`, { method: "POST", body: JSON.stringify({ model: from.url }) });
    from.state.lets = 1;
    assert.equal((await order()).status, 200);
    const shown = '[data-download="big-Q8_0"]';
    await page.waitForFunction((at) => /8\.00 MiB of 20\.0 MiB, 40 %/.test(document.querySelector(at)?.textContent), {}, shown);
    assert.ok((await page.$eval(`${shown} progress`, (bar) => bar.value / bar.max)) > 0.3);
    await page.click('[aria-label="Cancel big-Q8_0"]');
    from.state.held.splice(0).forEach((go) => go());
    await page.waitForFunction((at) => !document.querySelector(at), {}, shown);
    // It goes on where it was, until the file is another one.
    assert.equal((await order()).status, 200);
    await until("a part is waited for", () => from.state.held.length === 1);
    from.state.tag = "two";
    from.state.held.splice(0).forEach((go) => go());
    await page.waitForFunction((at) => /failed.*changed on the server/.test(document.querySelector(at)?.textContent), {}, shown);
    assert.deepEqual(page.troubles, []);
  } finally {
    await daemon.stop();
    from.close();
  }
});
