// An evicted model, a refused one, a dying engine and a full queue each show within 300 ms.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, live, open } from "./browser.mjs";
import { card, Daemon, GIB, model, pause, until } from "./daemon.mjs";

const WITHIN = 300;
/** A busy machine delays any single event, so each happens until one is shown in time. */
const ATTEMPTS = [0, 1, 2, 3, 4, 5];
let browser, daemon, page;

before(async () => {
  const each = ATTEMPTS.flatMap((at) => [
    model(`huge${at}`, "200GiB"),
    model(`mortal${at}`, "64MiB", "load_ms=20"),
    model(`slow${at}`, "64MiB", "load_ms=20 delay_ms=60000", "concurrency = 1"),
  ]);
  const config = [
    `[serve]\npatience = "0s"\n`,
    model("first", "14GiB", "load_ms=20", 'hold = "0s"'),
    model("second", "15GiB", "load_ms=20", 'hold = "0s"'),
    ...each,
  ];
  daemon = await Daemon.start({ cards: [card(1)], config: config.join("") });
  browser = await launch();
  page = await open(browser, daemon.url);
  await live(page);
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

const clock = () => performance.timeOrigin + performance.now();

/** The time from `act` until the page's text matches more often than before, seen by the page itself. */
async function shows(act, words) {
  const seen = await page.evaluateHandle((source) => {
    const count = () => document.body.innerText.match(new RegExp(source, "g"))?.length ?? 0;
    const before = count();
    return {
      shown: new Promise((done) => {
        const look = () => (count() > before ? done(performance.timeOrigin + performance.now()) : setTimeout(look, 4));
        look();
      }),
    };
  }, words);
  const at = await act();
  return (await seen.evaluate(({ shown }) => shown)) - at;
}

async function showsInTime(act, words) {
  const took = [];
  for (const at of ATTEMPTS) {
    took.push(await shows(() => act(at), words(at)));
    if (took.at(-1) < WITHIN) return;
  }
  assert.fail(`shown after ${took.map((ms) => ms.toFixed(0))} ms`);
}

/** The moment at which the daemon says `words` on stderr again, which it does when it decides. */
async function told(words, act) {
  const heard = () => daemon.talk.split(words).length;
  const before = heard();
  void act();
  return (await until(`${words} on stderr`, () => heard() > before && clock())).found;
}

test("an evicted model", async () => {
  await daemon.chat("second");
  const pair = ["first", "second"];
  await showsInTime(
    async (at) => {
      await until("it is ready", async () => (await daemon.engines()).has(pair[(at + 1) % 2]));
      return told(`stop ${pair[(at + 1) % 2]}`, () => daemon.chat(pair[at % 2]));
    },
    (at) => `${pair[(at + 1) % 2]} is stopped: ${pair[at % 2]} needs`,
  );
});

test("a refused model", () =>
  showsInTime(
    async (at) => {
      assert.equal((await daemon.chat(`huge${at}`)).status, 413);
      return clock();
    },
    (at) => `refused huge${at} `,
  ));

test("a dying engine, with what its end says", () =>
  showsInTime(
    async (at) => {
      await daemon.chat(`mortal${at}`);
      process.kill((await daemon.engines()).get(`mortal${at}`), "SIGKILL");
      return clock();
    },
    (at) => `failed mortal${at} .*SIGKILL`,
  ));

test("a queue, with the cause and the bound of the wait", () =>
  showsInTime(
    async (at) => {
      const ask = () => void daemon.chat(`slow${at}`).catch(() => undefined);
      ask();
      const busy = async () => (await daemon.get("/api/status")).models.find((one) => one.name === `slow${at}`).in_flight === 1;
      await until("the first is running", busy);
      ask();
      return clock();
    },
    (at) => `slow${at}: 1 request for .*, at most .* more\\s+the model already serves as many requests`,
  ));

test("memory follows the driver's next reading", async () => {
  await pause(50);
  await daemon.hold(() => [[0, 3 * GIB]]);
  await page.waitForFunction(() => Number(document.querySelector(".bar").dataset.used) > 0, { timeout: 20_000 });
  assert.deepEqual(page.troubles, []);
});
