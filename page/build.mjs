// Builds the page into the serve crate, or checks (--check) that the committed build is the one of these sources.
import { build } from "esbuild";
import { readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const here = new URL("./", import.meta.url);
const target = new URL("../crates/serve/src/route/page/", here);

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
const built = new Map(result.outputFiles.map((file) => [file.path.split("/").pop(), file.text]));
for (const name of ["index.html", "icon.svg"]) {
  built.set(name, await readFile(new URL(`src/${name}`, here), "utf8"));
}

let differs = 0;
for (const [name, text] of built) {
  const file = new URL(name, target);
  if (process.argv.includes("--check")) {
    const committed = await readFile(file, "utf8").catch(() => "");
    if (committed !== text) {
      console.error(`crates/serve/src/route/page/${name} is not the build of page/; run: npm run build`);
      differs += 1;
    }
  } else {
    await writeFile(file, text);
    console.log(`${name} ${Buffer.byteLength(text)} bytes`);
  }
}
process.exitCode = differs > 0 ? 1 : 0;
