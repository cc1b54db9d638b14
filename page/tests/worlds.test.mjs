// Dry runs come true: 50 random worlds of loaded, pinned and idle models on two cards.
import assert from "node:assert/strict";
import { test } from "node:test";
import { card, Daemon, model, until } from "./daemon.mjs";

const WORLDS = 50;
const SIZES = { a: 5, b: 9, c: 11, d: 14, e: 17, f: 20, g: 22, h: 60 };

/** The same worlds in each run. */
let seed = 12345;
const random = (most) => {
  seed = (seed * 1103515245 + 12345) % 2147483648;
  return Math.floor((seed / 2147483648) * most);
};

test("what a dry run says is what a load then does, in 50 random worlds", { timeout: 180_000 }, async () => {
  const models = Object.entries(SIZES).map(([name, gib]) => model(name, `${gib}GiB`, "load_ms=5", 'hold = "0s"')).join("");
  const daemon = await Daemon.start({ cards: [card(1), card(2)], config: `[serve]\npatience = "0s"\n${models}` });
  const names = Object.keys(SIZES);
  const fits = {};
  try {
    for (let world = 0; world < WORLDS; ) {
      // A world: some models are loaded, one of them may be pinned.
      for (let step = random(3); step > 0; step -= 1) await daemon.chat(names[random(7)]);
      const loaded = [...(await daemon.engines()).keys()];
      const pinned = loaded.filter(() => random(2) === 0);
      for (const name of pinned) await daemon.post("/api/models/pin", { model: name });
      const rest = async () => {
        const { models: all } = await daemon.get("/api/status");
        return all.every((one) => ["ready", "unloaded", "failed"].includes(one.state) && one.in_flight === 0) && all;
      };
      const { found: before } = await until("rest", rest);
      const target = names[random(8)];
      const unpin = () => Promise.all(pinned.map((name) => daemon.post("/api/models/unpin", { model: name })));
      if (before.find((one) => one.name === target).state === "ready") {
        await unpin();
        continue;
      }
      const said = await daemon.get(`/api/what-if?model=${target}`);
      const marks = async () => (await daemon.get("/api/status")).marks;
      const last = Math.max(0, ...(await marks()).map((mark) => mark.number));
      const { status } = await daemon.chat(target);
      const { found: after } = await until("rest", rest);
      const ids = new Map(after.map((one) => [one.id, one.name]));
      const stopped = (await marks()).filter((mark) => mark.number > last && mark.kind === "stop").map((mark) => ids.get(mark.model));
      const told = `world ${world}, ${target}: ${JSON.stringify(said)}, then ${status}, stopped ${stopped}`;
      assert.deepEqual(stopped.sort(), [...said.stops].sort(), told);
      assert.equal(status === 200, ["now", "after", "waits"].includes(said.fits), told);
      if (status === 200) {
        const { cards } = await daemon.get("/api/status");
        // It is placed as soon as the first of those that leave have left enough, which may be on other cards.
        const claims = cards.filter((one) => one.id !== "host").flatMap((one) => one.holders.filter((holder) => holder.model === target).map((holder) => holder.claim));
        const sum = (all) => all.reduce((total, one) => total + one, 0);
        assert.equal(sum(claims), sum(said.shares.map((share) => share.bytes)), told);
      }
      world += 1;
      fits[said.fits] = (fits[said.fits] ?? 0) + 1;
      await unpin();
    }
    console.log(JSON.stringify(fits));
    assert.ok(fits.now > 0 && fits.after > 0 && fits.crowded > 0 && fits.never > 0, JSON.stringify(fits));
  } finally {
    await daemon.stop();
  }
});
