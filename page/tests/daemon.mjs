// A test's own `plimsoll serve` with fake engines and fake cards, whose figures the test sets.
import { execFileSync, spawn } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

export const GIB = 1 << 30;
const root = fileURLToPath(new URL("../../", import.meta.url));

/** The folder of the programs under test, as cargo built them. */
export function built(name) {
  const folder = process.env.PLIMSOLL_BUILT ?? join(process.env.CARGO_TARGET_DIR ?? join(root, "target"), "debug");
  const path = join(folder, name);
  if (!existsSync(path)) throw new Error(`${path} is missing: cargo build -p plimsoll -p fake-engine -p fake-nvml`);
  return path;
}

export const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** Waits until `look` gives something, and returns it with the time that it took. */
export async function until(what, look, limit = 20_000) {
  const start = performance.now();
  for (;;) {
    const found = await look();
    if (found) return { found, ms: performance.now() - start };
    if (performance.now() - start > limit) throw new Error(`never happened: ${what}`);
    await pause(5);
  }
}

export class Daemon {
  /** `cards` are those of doubles/fake-nvml; `config` is TOML. */
  static async start({ cards, config, args = [] }) {
    const daemon = new Daemon();
    daemon.folder = mkdtempSync(join(tmpdir(), "plimsoll-page-"));
    daemon.cards = cards;
    daemon.show();
    const file = join(daemon.folder, "plimsoll.toml");
    writeFileSync(file, typeof config === "string" ? config : config(daemon));
    daemon.command = ["serve", file, "--listen", "127.0.0.1:0", ...args];
    await daemon.run();
    return daemon;
  }

  /** Starts the daemon in its folder, also once more after `end`. */
  async run() {
    const daemon = this;
    daemon.child = spawn(built("plimsoll"), daemon.command, {
      env: {
        ...process.env,
        HOME: daemon.folder,
        XDG_STATE_HOME: join(daemon.folder, "state"),
        PLIMSOLL_NVML: built("libnvidia_ml.so"),
        PLIMSOLL_FAKE_NVML_CARDS: `@${join(daemon.folder, "cards.json")}`,
      },
      stdio: ["ignore", "pipe", "pipe"],
    });
    daemon.talk = "";
    daemon.child.stderr.on("data", (text) => (daemon.talk += text));
    let line = "";
    daemon.child.stdout.on("data", (text) => (line += text));
    await until("an address on stdout", () => line.includes("\n") || daemon.child.exitCode !== null);
    if (!line.startsWith("http://")) throw new Error(`the daemon does not start:\n${daemon.talk}`);
    daemon.url = line.trim();
    daemon.port = Number(new URL(daemon.url).port);
  }

  /** Writes the cards; renamed into place, because the library reads the file at any moment. */
  show() {
    const file = join(this.folder, "cards.json");
    writeFileSync(`${file}.new`, JSON.stringify(this.cards.map((card) => {
      const { foreign: _, ...shown } = card;
      const held = (card.processes ?? []).reduce((sum, process) => sum + process.used, 0);
      // What the driver counts and lists for no process.
      return { ...shown, free: Math.max(0, Math.round(card.total - held - (card.foreign ?? 0))) };
    })));
    renameSync(`${file}.new`, file);
  }

  /** What the driver says is in use on a card. */
  used(card) {
    const { total, processes = [], foreign = 0 } = this.cards[card];
    const free = Math.round(total - processes.reduce((sum, process) => sum + process.used, 0) - foreign);
    return total - Math.max(0, free);
  }

  async get(path) {
    return (await fetch(this.url + path)).json();
  }

  post(path, body, headers = {}) {
    return fetch(this.url + path, { method: "POST", body: JSON.stringify(body), headers });
  }

  chat(model) {
    return this.post("/v1/chat/completions", { model, messages: [{ role: "user", content: "hello" }] });
  }

  /** Engines by model. */
  async engines() {
    const { running } = await this.get("/running");
    return new Map(running.filter((entry) => entry.pid).map((entry) => [entry.name, entry.pid]));
  }

  /** Lets the driver list what each engine holds: `held(model)` gives [card, bytes] pairs. */
  async hold(held, others = []) {
    const engines = await this.engines();
    this.cards.forEach((card) => (card.processes = []));
    for (const [model, pid] of engines) {
      for (const [card, used] of held(model)) this.cards[card].processes.push({ pid, used: Math.round(used) });
    }
    for (const [card, pid, used] of others) this.cards[card].processes.push({ pid, used: Math.round(used) });
    this.show();
  }

  async stop() {
    await this.end();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Ends the daemon; its folder stays. */
  end() {
    this.child.kill("SIGTERM");
    return new Promise((done) => {
      const late = setTimeout(() => this.child.kill("SIGKILL"), 5000);
      this.child.once("exit", () => {
        clearTimeout(late);
        done();
      });
      if (this.child.exitCode !== null) this.child.emit("exit");
    });
  }
}

export function card(at, name = "RTX 4090", total = 24 * GIB) {
  const pci = `00000000:0${at}:00.0`;
  return { uuid: `GPU-0000000${at}-aaaa-bbbb-cccc-dddddddddddd`, name, total, cc: [8, 9], pci, processes: [] };
}

/** A model of a declared size, which a fake engine with this script serves. */
export function model(name, memory, script = "", more = "") {
  const cmd = `${built("fake-engine")} --port \${PORT}`;
  const quoted = JSON.stringify(name);
  return `[models.${quoted}]\ncmd = ${JSON.stringify(cmd)}\nmemory = "${memory}"\nenv = { PLIMSOLL_FAKE_ENGINE = "${script}" }\n${more}\n`;
}

/** A model of a synthetic file, which is planned from its header; the engine is a llama.cpp that is none. */
export function planned(daemon, name, shape, flags, script = "") {
  const file = join(daemon.folder, `${shape}.gguf`);
  if (!existsSync(file)) execFileSync(built("specimen"), [shape, file], { stdio: "ignore" });
  const engine = join(daemon.folder, "llama-server");
  const fake = built("fake-engine");
  const words = `case "$1" in --version) echo 'version: 8799 (abc)';; --help) echo usage;; *) exec '${fake}' "$@";; esac`;
  writeFileSync(engine, `#!/bin/sh\n${words}\n`);
  chmodSync(engine, 0o755);
  return `[models.${JSON.stringify(name)}]\nmodel = "${file}"\nprogram = "${engine}"\nguard = { mode = "off" }\nflags = "${flags}"\nenv = { PLIMSOLL_FAKE_ENGINE = "${script}" }\n`;
}
