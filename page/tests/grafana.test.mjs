// The Grafana dashboard has the fields and values of Grafana's own schema.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const page = fileURLToPath(new URL("../", import.meta.url));
const dashboard = readFileSync(new URL("../../docs/grafana.json", import.meta.url), "utf8");

/** What the compiler says of a dashboard as a value of the schema's type; JSON has texts where TypeScript has enumerations. */
function check(json) {
  // Below the page's folder, where its packages are found.
  const folder = mkdtempSync(join(page, "node_modules/.grafana-"));
  try {
    const plain = "type Plain<T> = T extends string ? `${T}` : T extends (infer E)[] ? Plain<E>[] : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;";
    const file = join(folder, "dashboard.ts");
    writeFileSync(file, `import type { Dashboard } from "@grafana/schema";\n${plain}\nexport const dashboard: Plain<Dashboard> = ${json};\n`);
    const options = ["--noEmit", "--strict", "--skipLibCheck", "--module", "nodenext", "--moduleResolution", "nodenext", "--target", "es2022", "--ignoreConfig"];
    return spawnSync(join(page, "node_modules/.bin/tsc"), [...options, file], { encoding: "utf8" }).stdout;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("the dashboard is one by Grafana's schema, which refuses a wrong field and a wrong value", () => {
  assert.equal(check(dashboard), "");
  assert.match(check(dashboard.replace('"graphTooltip"', '"graphTooltips"')), /graphTooltips/);
  assert.match(check(dashboard.replace('"graphTooltip": 1', '"graphTooltip": 7')), /7/);
});
