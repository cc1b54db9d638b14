// State of the page: the last status document, and what it adds to over time.

import { batch, signal } from "@preact/signals";
import type { Card, Download, Fleet, Host, Mark, Model, Moved, OtherCard, Sample, Status } from "./types";

const MARKS = 600;
const HOUR = 3600;
/** Seconds between samples of the time line that the page adds itself. */
const APART = 5;

export type Connection =
  | { kind: "connecting" }
  | { kind: "live" }
  | { kind: "lost"; why: string }
  | { kind: "key"; refused: boolean };

/** The daemon's clock at the last document. */
export let heard = 0;
export const connection = signal<Connection>({ kind: "connecting" });
export const models = signal<Model[]>([]);
export const cards = signal<Card[]>([]);
export const host = signal<Host | null>(null);
export const otherCards = signal<OtherCard[]>([]);
export const moved = signal<Moved[]>([]);
export const downloads = signal<Download[]>([]);
export const fleet = signal<Fleet | null>(null);
export const server = signal<Status["server"] | null>(null);
export const marks = signal<Mark[]>([]);
export const residency = signal<Sample[]>([]);
/** The daemon's clock at the last whole second, for texts such as "idle 3 s". */
export const now = signal(0);
/** Names of models by number, also of those that have left the configuration. */
export const names = new Map<number, string>();

/** Colours that the style sheet has for models. */
export const TONES = 10;

/** The colour of a model, by its number. */
export function toneOf(name: string): number {
  const found = models.peek().find((model) => model.name === name);
  return found ? found.id % TONES : 0;
}

let clockOffset = 0;
const texts = new Map<string, string>();

/** Takes a document; parts that read as before keep their identity, so that nothing is drawn anew for them. */
export function take(status: Status): void {
  batch(() => {
    const first = status.residency !== undefined;
    if (first) {
      texts.clear();
      names.clear();
    }
    heard = status.now;
    clockOffset = status.now - performance.now() / 1000;
    tick();
    for (const model of status.models) names.set(model.id, model.name);
    models.value = keep("model", models.value, status.models, (model) => String(model.id));
    cards.value = keep("card", cards.value, status.cards, (card) => card.id);
    host.value = keep("host", host.value ? [host.value] : [], status.host ? [status.host] : [], () => "")[0] ?? null;
    moved.value = keep("moved", moved.value, status.moved_to_host ?? [], (one) => one.model);
    otherCards.value = keep("other", otherCards.value, status.other_cards ?? [], (card) => card.id);
    downloads.value = keep("download", downloads.value, status.downloads ?? [], (item) => item.name);
    fleet.value = keep("fleet", fleet.value ? [fleet.value] : [], status.fleet ? [status.fleet] : [], () => "")[0] ?? null;
    server.value = status.server;
    rights.value = status.server.rights ?? rights.value;
    if (first) marks.value = merge([], status.marks);
    else if (status.marks.length > 0) marks.value = merge(marks.value, status.marks);
    residency.value = extend(status.residency ?? residency.value, status);
    connection.value = { kind: "live" };
  });
}

export function tick(): void {
  now.value = Math.floor(clockOffset + performance.now() / 1000);
}

function keep<T>(kind: string, before: T[], after: T[], key: (item: T) => string): T[] {
  const old = new Map(before.map((item) => [key(item), item]));
  let same = before.length === after.length;
  const kept = after.map((item, at) => {
    const text = JSON.stringify(item);
    const place = kind + key(item);
    const unchanged = texts.get(place) === text ? old.get(key(item)) : undefined;
    texts.set(place, text);
    same &&= unchanged !== undefined && before[at] === unchanged;
    return unchanged ?? item;
  });
  return same ? before : kept;
}

/** Adds marks; one that was counted again takes the place of its earlier self. */
function merge(before: Mark[], added: Mark[]): Mark[] {
  const again = new Set(added.flatMap((mark) => mark.failure?.id ?? []));
  const numbers = new Set(before.map((mark) => mark.number));
  const kept = before.filter((mark) => !mark.failure || !again.has(mark.failure.id));
  const fresh = added.filter((mark) => mark.failure || !numbers.has(mark.number));
  return fresh.length === 0 ? before : [...kept, ...fresh].slice(-MARKS);
}

function extend(history: Sample[], status: Status): Sample[] {
  const sample: Sample = {
    at: status.now,
    cards: status.cards.map((card) => ({
      used: card.used,
      models: card.holders.flatMap((holder): [number, number][] => {
        const model = status.models.find((candidate) => candidate.name === holder.model);
        return model && holder.measured ? [[model.id, holder.measured]] : [];
      }),
    })),
  };
  const last = history.at(-1);
  const who = (item: Sample) => JSON.stringify(item.cards.map((card) => card.models.map(([id]) => id)));
  if (last && sample.at - last.at < APART && who(last) === who(sample)) return history;
  const start = sample.at - HOUR;
  // The sample before the hour stays, because it says how the hour begins.
  const from = Math.max(0, history.findLastIndex((item) => item.at <= start));
  return [...history.slice(from), sample].slice(-1500);
}

/** Rights of the key in use, which the first document has. */
const rights = signal<string[]>([]);

/** True if the key in use may send requests to models. */
export function mayUse(): boolean {
  return rights.value.includes("use");
}

/** True if the key in use may load, unload and pin. */
export function mayChange(): boolean {
  return rights.value.includes("change");
}

/** True if the key in use may read logs and keep memory free. */
export function mayOperate(): boolean {
  return rights.value.includes("operate");
}
