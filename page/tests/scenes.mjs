// Scenes that several tests show: a usual machine at work, and a large one.
import { spawn } from "node:child_process";
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { card, Daemon, GIB, model, planned } from "./daemon.mjs";

/** Two cards, another program on one, and models in every state. */
export async function usual() {
  const config = (own) =>
    [
      planned(own, "gpt-oss-20b", "oss", "-c 32768 -ngl 99", "load_ms=200 delay_ms=20"),
      planned(own, "llama-3.1-8b", "l8", "-c 16384 -ngl 99", "load_ms=200"),
      planned(own, "qwen3-4b", "qwen3-4b", "-c 8192 -ngl 99", "load_ms=200"),
      model("nomic-embed", "800MiB", "load_ms=50"),
      model("mistral-small", "9GiB", "load_ms=9000"),
      model("broken-quant", "1GiB", "fail=oom_at_load"),
      model("llama-70b", "42GiB"),
    ].join("");
  const daemon = await Daemon.start({ cards: [card(1), card(2, "RTX 3060", 12 * GIB)], config });
  // Its name on the page is that of its program.
  copyFileSync("/bin/sleep", join(daemon.folder, "comfyui"));
  daemon.other = spawn(join(daemon.folder, "comfyui"), ["1000"], { stdio: "ignore" });
  return daemon;
}

/** Lets each ready engine hold this share of its claim. */
export async function holdClaims(daemon, share, others = []) {
  const { cards, models } = await daemon.get("/api/status");
  const ids = cards.map((shown) => shown.id);
  const ready = new Map(models.map((one) => [one.name, one.state === "loading" ? [] : one.claim.filter((part) => part.card !== "host")]));
  await daemon.hold((name) => (ready.get(name) ?? []).map((part) => [ids.indexOf(part.card), part.bytes * share]), others);
}

/** 40 models on 8 cards. */
export async function large() {
  const cards = Array.from({ length: 8 }, (_, at) => card(at, "H200", 140 * GIB));
  const names = Array.from({ length: 40 }, (_, at) => `model-${String(at).padStart(2, "0")}`);
  const config = names.map((name, at) => model(name, `${8 + (at % 7) * 4}GiB`, "load_ms=10")).join("");
  const daemon = await Daemon.start({ cards, config });
  return { daemon, names };
}
