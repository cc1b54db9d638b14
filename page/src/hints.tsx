// Advice at a refusal, with buttons that carry it out.

import { begin } from "./act";
import { editFlags } from "./flags";
import { clip, short } from "./format";
import { mayChange, mayOperate, models } from "./store";
import type { Hint, Model } from "./types";

/** Hints that are shown, and pinned models that can be let go beside them. */
const MOST = 8;
const PINNED = 3;

type HintsProps = { hints: Hint[]; model: Model | undefined; tryFlags?: ((flags: string) => void) | undefined };

/** Opens the dialog with the flags of a hint; in the dialog it puts them into the text. */
function FlagsButton({ hint: { flags }, model, tryFlags }: Omit<HintsProps, "hints"> & { hint: Hint }) {
  if (!flags || !model?.editable || !mayOperate()) return null;
  return (
    <button
      type="button"
      class="small"
      aria-label={`Try ${clip(flags, 80)} for ${short(model.name, 80)}`}
      onClick={() => (tryFlags ? tryFlags(flags) : editFlags(model.name, flags))}
    >
      Try …
    </button>
  );
}

export function Hints({ hints, model, tryFlags }: HintsProps) {
  if (hints.length === 0) return null;
  return (
    <ul class="help" aria-label="what helps">
      {hints.slice(0, MOST).map((hint, at) => (
        <li key={at}>
          {clip(hint.text, 400)}
          <FlagsButton hint={hint} model={model} tryFlags={tryFlags} />
        </li>
      ))}
    </ul>
  );
}

/** What can be done about a model that has no room or has failed. */
export function WaysOut({ model, again }: { model: Model; again: boolean }) {
  if (!mayChange()) return null;
  const pinned = models.value.filter((one) => one.pinned && one.claim.length > 0 && one.id !== model.id);
  const canLoad = again && (model.state === "failed" || model.state === "unloaded");
  if (!canLoad && pinned.length === 0) return null;
  return (
    <p class="ways">
      {canLoad && (
        <button type="button" class="small" onClick={() => begin({ verb: "load", model })}>
          Load again …
        </button>
      )}
      {pinned.slice(0, PINNED).map((one) => (
        <button type="button" class="small" key={one.id} onClick={() => begin({ verb: "unpin", model: one })}>
          Unpin <bdi>{short(one.name, 40)}</bdi> …
        </button>
      ))}
    </p>
  );
}
