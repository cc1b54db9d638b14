// Load, unload and pin by hand: a dialog says what follows before anything is done.

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { bytes, clip, plural, seconds, sum } from "./format";
import { cards, models, now } from "./store";
import { ask, problem } from "./stream";
import type { Card, Model } from "./types";

type Verb = "load" | "unload" | "pin" | "unpin";
type Wish = { verb: Verb; model: Model };

const wish = signal<Wish | null>(null);
const outcome = signal("");

const PATHS: Record<Verb, string> = {
  load: "/models/load",
  unload: "/models/unload",
  pin: "/api/models/pin",
  unpin: "/api/models/unpin",
};

/** The actions that make sense for the model as it is. */
export function verbs(model: Model): Verb[] {
  const running = model.state !== "unloaded" && model.state !== "failed";
  return [running ? "unload" : "load", model.pinned ? "unpin" : "pin"];
}

export function Actions({ model }: { model: Model }) {
  return (
    <span class="actions">
      {verbs(model).map((verb) => (
        <button
          type="button"
          key={verb}
          aria-label={`${title(verb)} ${clip(model.name, 80)}`}
          onClick={() => {
            outcome.value = "";
            wish.value = { verb, model };
          }}
        >
          {title(verb)}
        </button>
      ))}
    </span>
  );
}

function title(verb: Verb): string {
  return verb[0]!.toUpperCase() + verb.slice(1);
}

/** What follows from the action, a sentence each. */
export function consequences({ verb, model }: Wish, all: Model[], shown: Card[], at: number): string[] {
  const held = sum(model.measured) || sum(model.claim);
  switch (verb) {
    case "unload":
      return [
        model.in_flight > 0
          ? `${plural(model.in_flight, "request is", "requests are")} answered to the end first.`
          : "No request is being answered.",
        model.queued > 0 ? `${plural(model.queued, "waiting request is", "waiting requests are")} refused.` : "",
        held > 0 ? `${bytes(held)} become free.` : "",
        "The next request for it loads it again.",
      ];
    case "load": {
      const room = shown.map((card) => `${bytes(card.free)} on ${card.name}`).join(", ");
      const leaving = all
        .filter((other) => other.outlook?.leaves && other.outlook.standing === "idle")
        .sort((a, b) => a.outlook!.leaves! - b.outlook!.leaves!)
        .map((other) => other.name);
      return [
        `Not claimed by any model: ${room || "nothing"}.`,
        leaving.length > 0
          ? `If that is too little, idle models are stopped for it, as few as suffice, in this order: ${leaving.join(", ")}.`
          : "No idle model could be stopped for it.",
        "If it never fits, it fails at once and nothing is stopped.",
      ];
    }
    case "pin":
      return [
        "It is not stopped for another model, nor for being idle, until it is unpinned or the daemon ends.",
        held > 0 ? `${bytes(held)} are then not available to other models.` : "It is not loaded by this.",
      ];
    case "unpin": {
      const idle = model.last_used === null ? "" : ` It was last used ${seconds(at - model.last_used)} ago.`;
      return [`It may be stopped for other models, and for being idle, from now on.${idle}`];
    }
  }
}

export function ActDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const open = wish.value;
  useEffect(() => {
    if (open && !dialog.current?.open) dialog.current?.showModal();
  }, [open]);
  if (!open) return null;
  const close = () => {
    dialog.current?.close();
    wish.value = null;
  };
  // The model as it is now, not as it was when the button was pressed.
  const model = models.value.find((candidate) => candidate.id === open.model.id) ?? open.model;
  const carryOut = async () => {
    const body = JSON.stringify({ model: model.name });
    const answer = await ask(PATHS[open.verb], { method: "POST", body }).catch((error: unknown) => String(error));
    if (typeof answer === "string") outcome.value = answer;
    else if (answer.ok) close();
    else outcome.value = await problem(answer);
  };
  return (
    <dialog ref={dialog} onClose={() => (wish.value = null)} aria-labelledby="act-title">
      <h2 id="act-title">
        {title(open.verb)} <bdi>{clip(model.name, 120)}</bdi>?
      </h2>
      <ul>
        {consequences({ ...open, model }, models.value, cards.value, now.value)
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
          {title(open.verb)}
        </button>
        <button type="button" onClick={close}>
          Cancel
        </button>
      </p>
    </dialog>
  );
}
