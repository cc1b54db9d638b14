// Load, unload, pin and yield by hand: a dialog says what follows before anything is done.

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { chatWith } from "./chat";
import { editFlags } from "./flags";
import { bytes, clip, plural, seconds, short, sum } from "./format";
import { type Answer, VERDICTS } from "./plan";
import { cards, mayChange, mayOperate, mayUse, models, now } from "./store";
import { ask, problem } from "./stream";
import type { Card, Model } from "./types";

type ModelVerb = "load" | "unload" | "pin" | "unpin";
type Wish = { verb: ModelVerb; model: Model } | { verb: "yield" | "end"; card: Card };
type KeptFree = { stops: string[]; lacks: number };

const GIB = 1 << 30;
const TITLES: Record<Wish["verb"], string> = {
  load: "Load",
  unload: "Unload",
  pin: "Pin",
  unpin: "Unpin",
  yield: "Keep free",
  end: "End",
};
const PATHS: Record<ModelVerb, string> = {
  load: "/models/load",
  unload: "/models/unload",
  pin: "/api/models/pin",
  unpin: "/api/models/unpin",
};
/** Times of a pin and of a yield, in seconds; none is until it is ended. */
const TIMES = [0, 600, 3600, 4 * 3600, 24 * 3600];

const wish = signal<Wish | null>(null);
const outcome = signal("");
/** What the daemon says would follow; null until it has answered. */
const foreseen = signal<string[] | null>(null);
const time = signal(0);
const size = signal(0);

export function begin(next: Wish): void {
  outcome.value = "";
  foreseen.value = null;
  time.value = 0;
  // A quarter of the card, as a beginning.
  size.value = "card" in next ? Math.max(1, Math.round(next.card.total / GIB / 4)) : 0;
  wish.value = next;
}

/** The actions that make sense for the model as it is. */
export function verbs(model: Model): ModelVerb[] {
  const running = model.state !== "unloaded" && model.state !== "failed";
  return [running ? "unload" : "load", model.pinned ? "unpin" : "pin"];
}

export function Actions({ model }: { model: Model }) {
  const name = short(model.name, 80);
  return (
    <span class="actions">
      {mayUse() && (
        <button type="button" aria-label={`Chat with ${name}`} onClick={() => chatWith(model.name)}>
          Chat
        </button>
      )}
      {model.editable && mayOperate() && (
        <button type="button" aria-label={`Flags of ${name}`} onClick={() => editFlags(model.name)}>
          Flags
        </button>
      )}
      {(mayChange() ? verbs(model) : []).map((verb) => (
        <button
          type="button"
          key={verb}
          aria-label={`${TITLES[verb]} ${name}`}
          onClick={() => begin({ verb, model })}
        >
          {TITLES[verb]}
        </button>
      ))}
    </span>
  );
}

/** Keeps memory of a card free for other programs, or ends that. */
export function YieldAction({ card, label }: { card: Card; label: string }) {
  const verb = card.yield ? "end" : "yield";
  const text = card.yield ? "End" : "Keep free …";
  return (
    <button type="button" class="small" aria-label={`${text} ${short(label, 80)}`} onClick={() => begin({ verb, card })}>
      {text}
    </button>
  );
}

/** What follows from the action by what is shown, a sentence each. */
export function consequences(wanted: Wish, shown: Card[], at: number): string[] {
  switch (wanted.verb) {
    case "yield":
      return [`${size.value} GiB of ${wanted.card.name} stay free for other programs; models are not loaded into them.`];
    case "end":
      return [`Models may use the whole load line of ${wanted.card.name} again.`];
    case "unload": {
      const { model } = wanted;
      const held = sum(model.measured) || sum(model.claim);
      return [
        model.in_flight > 0
          ? `${plural(model.in_flight, "request is", "requests are")} answered to the end first.`
          : "No request is being answered.",
        model.queued > 0 ? `${plural(model.queued, "waiting request is", "waiting requests are")} refused.` : "",
        held > 0 ? `${bytes(held)} become free.` : "",
        "The next request for it loads it again.",
      ];
    }
    case "load": {
      const room = shown.map((card) => `${bytes(card.free)} on ${card.name}`).join(", ");
      return [`Not claimed by any model: ${room || "nothing"}.`];
    }
    case "pin": {
      const held = sum(wanted.model.measured) || sum(wanted.model.claim);
      return [
        "It is not stopped for another model, nor for being idle, until then.",
        held > 0 ? `${bytes(held)} are then not available to other models.` : "It is not loaded by this.",
      ];
    }
    case "unpin": {
      const { last_used: used } = wanted.model;
      const idle = used === null ? "" : ` It was last used ${seconds(at - used)} ago.`;
      return [`It may be stopped for other models, and for being idle, from now on.${idle}`];
    }
  }
}

/** The dry run of the action; none where nothing else is touched. */
function dryRun(wanted: Wish): string {
  if (wanted.verb === "load") return `/api/what-if?${new URLSearchParams({ model: wanted.model.name }).toString()}`;
  if (wanted.verb !== "yield") return "";
  return `/api/what-if?${new URLSearchParams({ card: wanted.card.id, yield: `${size.value}GiB` }).toString()}`;
}

function told(said: Answer | KeptFree): string[] {
  const stops = said.stops.length > 0 ? `Must leave: ${said.stops.join(", ")}.` : "No model must leave.";
  if (!("fits" in said)) {
    return [stops, said.lacks > 0 ? `Pinned models keep ${bytes(said.lacks)} of it.` : ""];
  }
  const why = said.fits === "never" || said.fits === "crowded" ? (said.reason?.text ?? "") : stops;
  return [`By its plan it ${VERDICTS[said.fits]}.`, said.fits === "now" ? "" : why];
}

async function foresee(path: string, end: AbortSignal): Promise<void> {
  const answer = await ask(path, { signal: end });
  if (!answer.ok) throw new Error(await problem(answer));
  foreseen.value = told((await answer.json()) as Answer | KeptFree);
}

function carriedOut(wanted: Wish): Promise<Response> {
  if ("model" in wanted) {
    const until = wanted.verb === "pin" && time.value > 0 ? `?for=${time.value}` : "";
    return ask(PATHS[wanted.verb] + until, { method: "POST", body: JSON.stringify({ model: wanted.model.name }) });
  }
  const { id: card } = wanted.card;
  if (wanted.verb === "end") {
    return ask(`/api/yield?${new URLSearchParams({ card }).toString()}`, { method: "DELETE" });
  }
  const order = { size: `${size.value}GiB`, card, ...(time.value > 0 ? { for: time.value } : {}) };
  return ask("/api/yield", { method: "POST", body: JSON.stringify(order) });
}

function Settings({ wanted }: { wanted: Wish }) {
  if (wanted.verb !== "pin" && wanted.verb !== "yield") return null;
  return (
    <p class="choices">
      {wanted.verb === "yield" && (
        <label>
          keep{" "}
          <input
            type="range"
            min={1}
            max={Math.max(1, Math.floor(wanted.card.total / GIB))}
            value={size.value}
            aria-valuetext={`${size.value} GiB`}
            onInput={(event) => (size.value = Number(event.currentTarget.value))}
          />{" "}
          <output>{size.value} GiB</output>
        </label>
      )}
      <label>
        for{" "}
        <select value={time.value} onChange={(event) => (time.value = Number(event.currentTarget.value))}>
          {TIMES.map((length) => (
            <option key={length} value={length}>
              {length > 0 ? seconds(length).replace(/ 00 (s|min)$/, "") : "until ended"}
            </option>
          ))}
        </select>
      </label>
    </p>
  );
}

export function ActDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const open = wish.value;
  const dry = open ? dryRun(open) : "";
  useEffect(() => {
    if (open && !dialog.current?.open) {
      dialog.current?.showModal();
      // A slider or a list comes first in the dialog; Enter should still act.
      dialog.current?.querySelector<HTMLElement>(".primary")?.focus();
    }
  }, [open]);
  useEffect(() => {
    if (!dry) return;
    const end = new AbortController();
    const late = setTimeout(() => {
      foresee(dry, end.signal).catch((error: unknown) => {
        if (!end.signal.aborted) foreseen.value = [error instanceof Error ? error.message : String(error)];
      });
    }, 60);
    return () => {
      clearTimeout(late);
      end.abort();
    };
  }, [dry]);
  if (!open) return null;
  const close = () => {
    dialog.current?.close();
    wish.value = null;
  };
  // The model as it is now, not as it was when the button was pressed.
  const wanted: Wish =
    "model" in open ? { ...open, model: models.value.find((one) => one.id === open.model.id) ?? open.model } : open;
  const carryOut = async () => {
    const answer = await carriedOut(wanted).catch((error: unknown) => String(error));
    if (typeof answer === "string") outcome.value = answer;
    else if (answer.ok) close();
    else outcome.value = await problem(answer);
  };
  const sentences = [...consequences(wanted, cards.value, now.value), ...(foreseen.value ?? [])];
  const name = "model" in wanted ? wanted.model.name : wanted.card.name;
  return (
    <dialog ref={dialog} onClose={() => (wish.value = null)} aria-labelledby="act-title">
      <h2 id="act-title">
        {wanted.verb === "yield" ? "Keep memory free on" : wanted.verb === "end" ? "End keeping memory free on" : TITLES[wanted.verb]}{" "}
        <bdi>{short(name, 120)}</bdi>?
      </h2>
      <Settings wanted={wanted} />
      <ul aria-live="polite" data-foreseen={dry ? foreseen.value !== null : true}>
        {sentences
          .filter((text) => text)
          .map((text) => (
            <li key={text}>{clip(text, 1000)}</li>
          ))}
      </ul>
      <p class="bad" role="alert">
        {clip(outcome.value, 600)}
      </p>
      <p class="choices">
        <button type="button" class="primary" onClick={() => void carryOut()}>
          {TITLES[wanted.verb]}
        </button>
        <button type="button" onClick={close}>
          Cancel
        </button>
      </p>
    </dialog>
  );
}
