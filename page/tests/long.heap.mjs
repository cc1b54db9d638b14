// Eight hours of an open page in compressed time: as many documents as eight hours of ten a second have, and a flat heap.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { test } from "node:test";
import { launch, live, open } from "./browser.mjs";

const HOURS = 8;
const RATE = 10;
const ALL = HOURS * 3600 * RATE;
const GIB = 2 ** 30;
const built = (name) => readFileSync(new URL(`../../crates/route/src/page/${name}`, import.meta.url));
const FILES = { "/ui": ["index.html", "text/html; charset=utf-8"], "/ui/page.js": ["page.js", "text/javascript"], "/ui/icon.svg": ["icon.svg", "image/svg+xml"] };

const STATES = ["ready", "ready", "loading", "draining", "unloaded"];

/** The document number `at`: models come and go, memory grows, marks and failures pass. */
function status(at, first) {
  const now = at / RATE;
  const models = Array.from({ length: 8 }, (_, id) => {
    const state = STATES[(id + Math.floor(at / 600)) % STATES.length];
    const held = state === "ready" ? [{ card: "G1", bytes: 2 * GIB + ((at * 7919 + id) % 1000) * 1048576 }] : [];
    return {
      id, name: `model-${id}`, state, pinned: false, in_flight: (at + id) % 3, queued: at % 97 === 0 ? 1 : 0, last_used: now - id,
      claim: [{ card: "G1", bytes: 3 * GIB }], alone: false, measured: held, last_failure: null, held_back: null, speed: 40 + (at % 9),
      outlook: { standing: "idle", leaves: id + 1 },
    };
  });
  const parts = models.filter((one) => one.measured.length > 0).map((one) => ({ kind: "model", name: one.name, bytes: one.measured[0].bytes, terms: [["weights", 2 * GIB], ["growth", one.measured[0].bytes - 2 * GIB]] }));
  const used = parts.reduce((sum, part) => sum + part.bytes, 0);
  const holders = models.map((one) => ({ run: one.id, model: one.name, claim: 3 * GIB, measured: one.measured[0]?.bytes ?? null }));
  const marks = [];
  if (at % 50 === 0) marks.push({ number: at + 1, at: now, kind: ["load", "ready", "stop"][(at / 50) % 3], model: (at / 50) % 8, text: `the reason of ${at}` });
  if (at % 700 === 0) {
    const reason = { code: "x", text: `model-1 failed for the ${at}th time`, because: [{ code: "y", text: "no room" }] };
    marks.push({ number: at + 2, at: now, kind: "failed", model: 1, text: reason.text, failure: { id: at + 2, times: 1, reason, hints: [{ text: "less context" }] } });
  }
  return JSON.stringify({
    schema: "plimsoll.events/1", now, models, host: null, marks,
    cards: [{ id: "G1", name: "H200", total: 140 * GIB, capacity: 130 * GIB, claimed: 24 * GIB, free: 100 * GIB, foreign: 0, limit: 130 * GIB, holders, used, parts }],
    server: { version: "0", uptime: now, requests: { answered: at, failed: 0, abandoned: 0 } },
    ...(first ? { residency: [] } : {}),
  });
}

/** A server with the page's files, whose stream sends documents as fast as the page takes them, up to `limit`. */
async function serve() {
  const own = { limit: 1, sent: 0, wake: undefined };
  const policy = built("policy.txt").toString();
  own.server = createServer((request, answer) => {
    const file = FILES[request.url];
    if (file) return answer.writeHead(200, { "content-type": file[1], "content-security-policy": policy }).end(built(file[0]));
    if (request.url !== "/api/status/stream") return answer.writeHead(200).end('{"failures":[]}');
    answer.writeHead(200, { "content-type": "text/event-stream" });
    void (async () => {
      for (;;) {
        if (own.sent >= own.limit) await new Promise((done) => (own.wake = done));
        const first = own.sent === 0;
        if (!answer.write(`data: ${status(own.sent, first)}\n\n`)) await new Promise((done) => answer.once("drain", done));
        own.sent += 1;
      }
    })();
  });
  await new Promise((done) => own.server.listen(0, "127.0.0.1", done));
  own.url = `http://127.0.0.1:${own.server.address().port}`;
  return own;
}

test(`${ALL} documents leave the heap as large as it was`, { timeout: 900_000 }, async () => {
  const own = await serve();
  const browser = await launch();
  try {
    const page = await open(browser, own.url);
    const session = await page.createCDPSession();
    const heap = async () => {
      await session.send("HeapProfiler.collectGarbage");
      const { usedSize } = await session.send("Runtime.getHeapUsage");
      const { nodes } = await session.send("Memory.getDOMCounters");
      return { bytes: usedSize, nodes };
    };
    const until = async (count) => {
      own.limit = count;
      own.wake?.();
      const shown = `${count - 1} requests answered`;
      await page.waitForFunction((text) => document.querySelector(".totals")?.textContent.startsWith(text), { timeout: 800_000, polling: 100 }, shown);
    };
    await live(page);
    // The first hour fills the rings of the time line and of the marks.
    const seen = [];
    for (let hour = 1; hour <= HOURS; hour += 1) {
      await until((hour * ALL) / HOURS);
      seen.push(await heap());
    }
    console.log(`heap by hour: ${seen.map((one) => (one.bytes / 1e6).toFixed(1)).join(", ")} MB; nodes ${seen.map((one) => one.nodes).join(", ")}`);
    const [before, after] = [seen[1], seen.at(-1)];
    assert.equal(own.sent, ALL);
    assert.ok(after.bytes < before.bytes + 1_000_000, `${before.bytes} to ${after.bytes} bytes`);
    assert.ok(after.nodes < before.nodes + 200, `${before.nodes} to ${after.nodes} nodes`);
    assert.deepEqual(page.troubles, []);
  } finally {
    await browser.close();
    own.server.closeAllConnections();
    own.server.close();
  }
});
