// Builds the page into the serve crate, or checks (--check) that the committed build is the one of these sources.
import { createHash } from "node:crypto";
import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const here = new URL("./", import.meta.url);
const target = new URL("../crates/route/src/page/", here);

// The licences of the libraries ask that their notices travel with them.
const PACKAGES = ["preact", "@preact/signals", "@preact/signals-core", "uplot"];
const notices = PACKAGES.map(async (name) => {
  const text = await readFile(new URL(`node_modules/${name}/LICENSE`, here), "utf8");
  return `${name}\n\n${text.trim()}`;
});

const result = await build({
  absWorkingDir: fileURLToPath(here),
  entryPoints: { page: "src/main.tsx" },
  bundle: true,
  minify: true,
  write: false,
  outdir: "out",
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  footer: { js: `/*\n${(await Promise.all(notices)).join("\n\n")}\n*/` },
  jsx: "automatic",
  jsxImportSource: "preact",
  logLevel: "warning",
});
const made = new Map(result.outputFiles.map((file) => [file.path.split("/").pop(), file.text]));
const source = (name) => readFile(new URL(`src/${name}`, here), "utf8");
// The style stands in the document, so that the first paint waits for one file; the policy names it by its hash.
const style = made.get("page.css").trim();
const hash = createHash("sha256").update(style).digest("base64");
const built = new Map([
  ["page.js", made.get("page.js")],
  ["index.html", (await source("index.html")).replace("<style></style>", () => `<style>${style}</style>`)],
  ["icon.svg", await source("icon.svg")],
  ["policy.txt", (await source("policy.txt")).trim().replaceAll("\n", " ").replace("HASH", hash)],
]);

/** The page is loaded over slow links too. */
const MOST = 200_000;
const size = [...built.values()].reduce((sum, text) => sum + Buffer.byteLength(text), 0);
if (size > MOST) throw new Error(`the page has ${size} bytes, of at most ${MOST}`);

let differs = 0;
for (const [name, text] of built) {
  const file = new URL(name, target);
  if (process.argv.includes("--check")) {
    const committed = await readFile(file, "utf8").catch(() => "");
    if (committed !== text) {
      console.error(`crates/route/src/page/${name} is not the build of page/; run: npm run build`);
      differs += 1;
    }
  } else {
    await writeFile(file, text);
    console.log(`${name} ${Buffer.byteLength(text)} bytes`);
  }
}
process.exitCode = differs > 0 ? 1 : 0;
