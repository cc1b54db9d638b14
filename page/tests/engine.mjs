// An engine with a page of its own, whose script tries what a foreign page may not do. `node engine.mjs PORT`
import { createServer } from "node:http";
import { gzipSync } from "node:zlib";

const PAGE = `<!doctype html><title>begun</title><script type="module">
const operator = new URLSearchParams(location.search).get("operator");
const attempt = async (act) => {
  try {
    return String(await act());
  } catch (error) {
    return error.name;
  }
};
const read = (url) => attempt(async () => (await fetch(url)).text());
window.seen = {
  origin: self.origin,
  own: await read("data"),
  api: await read(operator + "/api/status"),
  metrics: await read(operator + "/metrics"),
  order: await attempt(async () => (await fetch(operator + "/models/unload", { method: "POST", body: '{"model":"page"}', mode: "no-cors" })).type),
  cookie: await attempt(() => ((document.cookie = "script=1; path=/"), document.cookie)),
  wide: await attempt(() => ((document.cookie = "wide=1; path=/; domain=localhost"), document.cookie)),
  storage: await attempt(() => (localStorage.setItem("a", "1"), localStorage.getItem("a"))),
  worker: await attempt(async () => (await navigator.serviceWorker.register("sw.js")).scope),
};
document.title = "done";
</script>`;

const answers = {
  "/": ["text/html", PAGE],
  "/data": ["application/json", '{"engine":true}'],
  "/sw.js": ["text/javascript", "self.addEventListener('fetch', () => {});"],
  "/health": ["application/json", '{"status":"ok"}'],
};

createServer((request, answer) => {
  const [kind, body] = answers[new URL(request.url, "http://engine").pathname] ?? ["application/json", "{}"];
  const headers = { "content-type": kind, "set-cookie": "engine=1; Path=/", "service-worker-allowed": "/" };
  if (body !== PAGE) {
    answer.writeHead(200, headers).end(body);
  } else if (/\bgzip\b/.test(request.headers["accept-encoding"])) {
    // As llama-server's page, it is there in compressed form alone.
    answer.writeHead(200, { ...headers, "content-encoding": "gzip" }).end(gzipSync(body));
  } else {
    answer.writeHead(415, headers).end();
  }
}).listen(Number(process.argv[2]), "127.0.0.1");
