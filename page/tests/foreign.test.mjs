// A page of another origin can neither read nor act; keys are asked for; hostile texts stay text.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { launch, live, open } from "./browser.mjs";
import { built, card, Daemon, model, pause } from "./daemon.mjs";

const EVIL = `<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>`;
const RTL = "\u202Egnp.exe\u2066abc";
let browser, daemon, keyed, evil;

before(async () => {
  const config = (own) => {
    const noise = join(own.folder, "noise.sh");
    writeFileSync(noise, `head -c 10000000 /dev/zero | tr '\\0' x\necho\necho '${EVIL.replaceAll("'", "")}'\nexec ${built("fake-engine")} "$@"\n`);
    const noisy = `[models.noisy]\ncmd = "bash ${noise} --port \${PORT}"\nmemory = "64MiB"\n`;
    return model(EVIL, "1GiB") + model(RTL, "1GiB") + model("plain", "1GiB", "answer_bytes=10") + noisy;
  };
  daemon = await Daemon.start({ cards: [card(1)], config });
  keyed = await Daemon.start({ cards: [card(1)], config: `[serve]\napi-keys = ["secret"]\n[keys.viewer]\nkey = "look"\nrights = ["see"]\n${model("plain", "1GiB")}` });
  evil = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<title>evil</title>"));
  await new Promise((done) => evil.listen(0, "127.0.0.1", done));
  browser = await launch(["--host-resolver-rules=MAP evil.example 127.0.0.1"]);
});
after(async () => {
  await browser?.close();
  await daemon?.stop();
  await keyed?.stop();
  evil?.close();
});

test("fetch, event stream, form, frame and image of a foreign page", async () => {
  const page = await browser.newPage();
  await page.goto(`http://evil.example:${evil.address().port}/`);
  const got = await page.evaluate(async (url) => {
    const tried = {};
    const attempt = async (name, act) => {
      tried[name] = await act().catch(() => "refused");
    };
    await attempt("read", async () => (await fetch(`${url}/api/status`)).text());
    await attempt("act", async () => (await fetch(`${url}/models/load`, { method: "POST", body: '{"model":"plain"}' })).text());
    await attempt("blind", async () => {
      await fetch(`${url}/models/load`, { method: "POST", mode: "no-cors", body: '{"model":"plain"}' });
      return "sent";
    });
    await attempt("unload", async () => {
      await fetch(`${url}/unload`, { mode: "no-cors" });
      return "sent";
    });
    await attempt("stream", () => new Promise((done, fail) => {
      const source = new EventSource(`${url}/api/status/stream`);
      source.onmessage = () => done("heard");
      source.onerror = () => fail(new Error("refused"));
    }));
    await attempt("websocket", () => new Promise((done, fail) => {
      const socket = new WebSocket(`${url.replace("http", "ws")}/upstream/plain/socket`);
      socket.onopen = () => done("open");
      socket.onerror = () => fail(new Error("refused"));
    }));
    await attempt("script", () => new Promise((done, fail) => {
      const script = document.createElement("script");
      Object.assign(script, { src: `${url}/ui/page.js`, type: "module", onload: () => done("loaded"), onerror: fail });
      document.head.append(script);
    }));
    await attempt("frame", () => new Promise((done) => {
      const frame = document.createElement("iframe");
      frame.name = "target";
      frame.src = `${url}/ui`;
      frame.onload = () => setTimeout(() => done(frame.contentWindow.length), 300);
      document.body.append(frame);
    }));
    const form = document.createElement("form");
    Object.assign(form, { method: "post", action: `${url}/models/load`, target: "target", enctype: "text/plain" });
    form.innerHTML = `<input name='{"model":"plain","x":"' value='"}'>`;
    document.body.append(form);
    form.submit();
    return tried;
  }, daemon.url);
  await pause(500);
  for (const name of ["read", "act", "stream", "websocket", "script"]) assert.equal(got[name], "refused", name);
  const frame = page.frames().find((candidate) => candidate.parentFrame());
  assert.ok(!frame?.url().startsWith(daemon.url) || !(await frame.$("#page")), "the page is not shown in a frame");
  const { models } = await daemon.get("/api/status");
  assert.equal(models.find((shown) => shown.name === "plain").state, "unloaded", "nothing was loaded");
});

test("its headers forbid what the page does not need", async () => {
  for (const path of ["/ui", "/ui/page.js", "/ui/icon.svg"]) {
    const { headers } = await fetch(daemon.url + path);
    const policy = headers.get("content-security-policy");
    assert.match(policy, /default-src 'none'.*frame-ancestors 'none'/);
    assert.doesNotMatch(policy, /unsafe|\*|http/);
    assert.equal(headers.get("x-content-type-options"), "nosniff");
  }
  const asks = (accept) => fetch(`${daemon.url}/`, { headers: { accept } });
  assert.match((await asks("text/html,*/*")).headers.get("content-type"), /html/);
  assert.match((await asks("*/*")).headers.get("content-type"), /text\/plain/);
});

test("markup and right-to-left text in names and logs are text", async () => {
  await daemon.chat(EVIL);
  await daemon.chat("noisy");
  const page = await open(browser, daemon.url);
  await live(page);
  await page.click("summary h2#logs");
  await page.waitForFunction(() => document.querySelector("pre")?.textContent.includes("document.title"));
  assert.ok(await page.$eval("pre", (pre) => pre.textContent.length < 1_000_000), "a line of 10 MB is cut");
  assert.equal(await page.title(), "Plimsoll");
  assert.equal(await page.$$eval("#page img, #page script", (all) => all.length), 0);
  const rows = await page.$$eval("tbody th", (all) => all.map((row) => row.textContent));
  assert.ok(rows.includes(EVIL) && rows.includes(RTL), "names are shown whole");
  assert.deepEqual(page.troubles, []);
});

test("without a key there is nothing to see or to click, and with it there is", async () => {
  const page = await open(browser, keyed.url);
  await page.waitForSelector('[data-connection="key"]');
  assert.equal(await page.$$eval("button", (all) => all.map((one) => one.textContent).join()), "Show");
  assert.doesNotMatch(await page.$eval("body", (body) => body.outerHTML), /plain/);
  await page.type("input[name=key]", "wrong");
  await page.keyboard.press("Enter");
  await page.waitForSelector("[role=alert]");
  await page.$eval("input[name=key]", (field) => (field.value = ""));
  await page.type("input[name=key]", "secret");
  await page.keyboard.press("Enter");
  await live(page);
  assert.match(await page.$eval("table", (table) => table.textContent), /plain.*Load/);
  assert.doesNotMatch(page.url(), /secret/);
});

test("a key that may only look has nothing to click that changes something, and no logs", async () => {
  const page = await open(browser, keyed.url);
  await page.waitForSelector("input[name=key]");
  await page.type("input[name=key]", "look");
  await page.keyboard.press("Enter");
  await live(page);
  assert.match(await page.$eval("table", (table) => table.textContent), /plain/);
  const clickable = await page.$$eval("button, summary", (all) => all.map((one) => one.textContent));
  assert.deepEqual(clickable, ["What if"]);
  assert.deepEqual(page.troubles.filter((text) => !/401/.test(text)), []);
});
