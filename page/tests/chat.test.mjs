// Chat of the page: an answer, its stop, a picture, a wait with its cause, and a refusal with a button.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, live, open, violations } from "./browser.mjs";
import { built, card, Daemon, model, planned, until } from "./daemon.mjs";
import { shoot } from "./shots.mjs";

let browser, daemon;
before(async () => {
  const config = (own) => {
    execFileSync(built("specimen"), ["gemma3-4b-mmproj", join(own.folder, "sight.gguf")], { stdio: "ignore" });
    return [
      `[serve]\nheartbeat = "100ms"\n`,
      model("talker", "1GiB", "load_ms=20 events=40 event_ms=20"),
      model("endless", "1GiB", "load_ms=20 events=100000 event_ms=20"),
      model("busy", "20GiB", "load_ms=20 delay_ms=60000"),
      model("late", "19GiB", "load_ms=20"),
      model("broken", "1GiB", "fail=oom_at_load"),
      planned(own, "seer", "gemma3-4b", `-c 4096 -ngl 99 --mmproj ${join(own.folder, "sight.gguf")}`, "load_ms=20"),
    ].join("");
  };
  daemon = await Daemon.start({ cards: [card(1)], config });
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
});

/** Opens the chat with a model and sends a message by the keyboard. */
async function say(page, name, text) {
  await page.locator(`[aria-label="Chat with ${name}"]`).click();
  await page.waitForSelector("#chat-draft");
  await page.type("#chat-draft", text);
  await page.keyboard.press("Enter");
}

const turns = (page) => page.$$eval("[data-turn]", (all) => all.map((one) => one.textContent));

test("an answer is streamed, with the engine's speed at its end", { timeout: 60_000 }, async () => {
  const page = await open(browser, daemon.url);
  await live(page);
  await say(page, "talker", "hello <b>you</b>");
  await page.waitForFunction(() => /3 x.*4 x/s.test(document.querySelector('[data-turn="running"]')?.textContent ?? ""));
  await page.waitForFunction(() => /tokens\/s/.test([...document.querySelectorAll("[data-turn]")].at(-1).textContent));
  const [asked, answered] = await turns(page);
  assert.match(asked, /^Youhello <b>you<\/b>/);
  assert.match(answered, /39 x.*\d+ tokens?, [\d.]+ tokens\/s/s);
  // The second message carries the first answer.
  const sent = page.waitForRequest((request) => request.url().endsWith("/chat/completions"));
  await page.type("#chat-draft", "and\nmore");
  const { messages } = JSON.parse((await sent).postData());
  assert.deepEqual(messages.map((one) => one.role), ["user", "assistant", "user"]);
  await page.waitForFunction(() => [...document.querySelectorAll("[data-turn] small")].length === 2);
  assert.deepEqual(await violations(page), []);
  await shoot(page, "chat", ["wide", "dark", "phone"]);
  assert.deepEqual(page.troubles, []);
});

test("a stop ends the answer at the engine, and what has come stays", { timeout: 60_000 }, async () => {
  const page = await open(browser, daemon.url);
  await live(page);
  await say(page, "endless", "go");
  await page.waitForFunction(() => /5 x/.test(document.querySelector('[data-turn="running"]')?.textContent ?? ""));
  await page.locator(".composer .primary").click();
  await until("the request has ended", async () => (await daemon.get("/api/status")).models.find((one) => one.name === "endless").in_flight === 0);
  await page.waitForFunction(() => /stopped$/.test([...document.querySelectorAll("[data-turn]")].at(-1).textContent));
  assert.match((await turns(page)).at(-1), /5 x/);
  assert.equal(await page.$eval(".composer .primary", (button) => button.textContent), "Send");
});

test("a picture is sent where the model takes them, made small, and drawn without an address", { timeout: 60_000 }, async () => {
  const page = await open(browser, daemon.url);
  await live(page);
  await page.locator('[aria-label="Chat with talker"]').click();
  await page.waitForSelector("#chat-draft");
  assert.equal(await page.$(".composer input[type=file]"), null);
  await until("its file is read", async () => (await daemon.get("/api/status")).models.find((one) => one.name === "seer").images);
  await page.locator('[aria-label="Chat with seer"]').click();
  const input = await page.waitForSelector(".composer input[type=file]");
  const file = join(daemon.folder, "wide.png");
  const drawn = await page.evaluate(() => {
    const canvas = Object.assign(document.createElement("canvas"), { width: 4000, height: 200 });
    canvas.getContext("2d").fillRect(10, 10, 900, 90);
    return canvas.toDataURL("image/png").split(",")[1];
  });
  writeFileSync(file, Buffer.from(drawn, "base64"));
  const text = join(daemon.folder, "no-picture.png");
  writeFileSync(text, "<svg onload=alert(1)>");
  await input.uploadFile(text);
  await page.waitForFunction(() => /no picture that this browser reads/.test(document.querySelector(".composer").textContent));
  await input.uploadFile(file);
  await page.waitForFunction(() => /wide\.png/.test(document.querySelector(".picture").textContent));
  const sent = page.waitForRequest((request) => request.url().endsWith("/chat/completions"));
  await page.type("#chat-draft", "what is it?");
  await page.keyboard.press("Enter");
  const [{ content }] = JSON.parse((await sent).postData()).messages;
  assert.deepEqual(content[0], { type: "text", text: "what is it?" });
  assert.match(content[1].image_url.url, /^data:image\/jpeg;base64,/);
  const size = await page.$eval("[data-turn] canvas", (canvas) => [canvas.width, canvas.height]);
  assert.deepEqual(size, [160, 7]);
  assert.deepEqual(await violations(page), []);
  assert.deepEqual(page.troubles, []);
});

test("a wait says why and how long, and a refusal has a button", { timeout: 60_000 }, async () => {
  void daemon.chat("busy").catch(() => undefined);
  await until("busy runs", async () => (await daemon.get("/api/status")).models.find((one) => one.name === "busy").in_flight === 1);
  const page = await open(browser, daemon.url);
  await live(page);
  await say(page, "late", "hello");
  await page.waitForFunction(() => /waits for \d+ s; busy must leave first/.test(document.querySelector("[data-chat-waits]")?.textContent ?? ""));
  assert.deepEqual(await violations(page), []);
  await page.locator(".composer .primary").click();
  await page.waitForFunction(() => document.querySelector('[data-turn="running"]') === null);
  await say(page, "broken", "hello");
  await page.waitForSelector('[data-turn] [role="alert"]');
  // What got no answer is not sent again.
  const sent = page.waitForRequest((request) => request.url().endsWith("/chat/completions"));
  await say(page, "talker", "again");
  assert.deepEqual(JSON.parse((await sent).postData()).messages, [{ role: "user", content: "again" }]);
  await page.locator("[data-failure] .ways button").click();
  await page.waitForSelector("dialog[open]");
  assert.match(await page.$eval("dialog", (dialog) => dialog.textContent), /^Load broken\?/);
  assert.deepEqual(await violations(page), []);
});

test("a key with the rights to use and to see chats, and has no other button at a model", { timeout: 60_000 }, async () => {
  const keys = '[keys.guest]\nkey = "guest-of-all"\nrights = ["use", "see"]\n';
  const keyed = await Daemon.start({ cards: [card(1)], config: (own) => keys + planned(own, "open", "l8", "-c 4096 -ngl 99") });
  try {
    const page = await open(browser, keyed.url);
    await page.waitForSelector("input[name=key]");
    await page.type("input[name=key]", "guest-of-all");
    await page.keyboard.press("Enter");
    await live(page);
    assert.deepEqual(await page.$$eval("tbody button", (all) => all.map((one) => one.textContent)), ["Chat"]);
    await say(page, "open", "hello");
    await page.waitForFunction(() => /tokens/.test([...document.querySelectorAll("[data-turn]")].at(-1).textContent));
    const refused = await fetch(`${keyed.url}/api/flags?model=open`, { headers: { authorization: "Bearer guest-of-all" } });
    assert.equal(refused.status, 403);
  } finally {
    await keyed.stop();
  }
});
