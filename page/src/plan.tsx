// What if: plans a model with another context, cache or number of slots, and says who would have to leave.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { bytes, clip, short, sum } from "./format";
import { Hints } from "./hints";
import { cards, models, toneOf } from "./store";
import { ask, problem } from "./stream";
import type { Hint, Model, Reason, Share, Term } from "./types";
import { Why } from "./waiting";

export type Answer = {
  fits: "now" | "after" | "waits" | "crowded" | "never";
  shares: Share[];
  stops: string[];
  reason?: Reason;
  hints?: Hint[];
  terms?: { card: string; terms: Term[] }[];
  lowered_context?: number | null;
};

export const VERDICTS: Record<Answer["fits"], string> = {
  now: "fits now, nothing has to leave",
  after: "fits after idle models have left",
  waits: "fits once busy models have finished and left",
  crowded: "does not fit beside other programs and pinned models",
  never: "never fits on these cards",
};

const CACHES = ["", "f16", "q8_0", "q5_1", "q4_0"];
/** Steps of the slider for the context: 1 Ki to 1 Mi tokens, and the configured one at the left end. */
const STEPS = 11;

const chosen = signal("");
const step = signal(0);
const slots = signal(0);
const cache = signal("");
const answer = signal<Answer | null>(null);
const trouble = signal("");
const open = signal(false);

function context(at: number): number {
  return 1024 * 2 ** (at - 1);
}

async function plan(path: string, end: AbortSignal): Promise<void> {
  const reply = await ask(path, { signal: end });
  if (reply.ok) answer.value = (await reply.json()) as Answer;
  else answer.value = null;
  trouble.value = reply.ok ? "" : await problem(reply);
}

function path(): string {
  const query = new URLSearchParams({ model: chosen.value });
  if (step.value > 0) query.set("context", String(context(step.value)));
  if (slots.value > 0) query.set("slots", String(slots.value));
  if (cache.value) query.set("cache", cache.value);
  return `/api/what-if?${query.toString()}`;
}

/** The parts of a share. A load claims what was measured before, where that is more than the plan. */
function terms(said: Answer, share: Share): Term[] {
  const planned = said.terms?.find((one) => one.card === share.card)?.terms ?? [];
  const beyond = share.bytes - planned.reduce((total, [, count]) => total + count, 0);
  return planned.length > 0 && beyond > 0 ? [...planned, ["measured beyond the plan", beyond]] : planned;
}

/** The cards with this plan on them: others that stay, the parts of the plan, and the load line. */
export function PlanBars({ said, model }: { said: Answer; model: string }) {
  const leaves = [model, ...said.stops];
  const tone = `tone-${toneOf(model)}`;
  const share = (part: number, total: number) => ({ width: `${((100 * part) / Math.max(1, total)).toFixed(2)}%` });
  return (
    <>
      {said.shares.map((planned) => {
        const card = cards.value.find((one) => one.id === planned.card);
        if (!card) return null;
        const others = card.holders.filter((one) => !leaves.includes(one.model));
        const held = others.reduce((total, one) => total + Math.max(one.claim, one.measured ?? 0), card.foreign);
        const limit = card.limit ?? card.total;
        const label = `${short(card.name, 60)}: ${bytes(planned.bytes)} beside ${bytes(held)} of others`;
        return (
          <figure key={planned.card}>
            <figcaption>
              <bdi>{short(card.name, 60)}</bdi>
              {held > 0 && ` with ${bytes(held)} of others`}
            </figcaption>
            <div class="bar plan" role="img" aria-label={label} data-planned={planned.bytes}>
              <span class="foreign" style={share(held, card.total)} title={`others  ${bytes(held)}`} />
              {terms(said, planned).map(([term, count]) => (
                <span key={term} class={`${tone} term-${term}`} style={share(count, card.total)} title={`${term}  ${bytes(count)}`} />
              ))}
              {!terms(said, planned).length && <span class={tone} style={share(planned.bytes, card.total)} />}
              {limit < card.total && <i class="line" style={{ left: share(limit, card.total).width }} />}
            </div>
          </figure>
        );
      })}
    </>
  );
}

type ResultProps = { said: Answer; model: Model | undefined; tryFlags?: (flags: string) => void };

export function Result({ said, model, tryFlags }: ResultProps) {
  const label = (id: string) => cards.value.find((card) => card.id === id)?.name ?? id;
  const bad = said.fits === "never" || said.fits === "crowded";
  return (
    <div role="status" data-fits={said.fits}>
      <p>
        <b class={bad ? "bad" : ""}>{VERDICTS[said.fits]}</b>
        {said.shares.length > 0 && <span class="planned"> {bytes(sum(said.shares))} planned</span>}
        {said.lowered_context != null && <> · its context is lowered to {said.lowered_context} tokens</>}
      </p>
      {said.stops.length > 0 && (
        <p>
          Would leave: <bdi>{clip(said.stops.join(", "), 400)}</bdi>
        </p>
      )}
      <ul class="legend">
        {said.shares.map((share) => (
          <li key={share.card}>
            <bdi>{clip(label(share.card), 60)}</bdi> <span class="planned">{bytes(share.bytes)}</span>
            {terms(said, share).map(([term, count]) => (
              <span key={term} class="planned">
                {" · "}
                {term} {bytes(count)}
              </span>
            ))}
          </li>
        ))}
      </ul>
      {said.reason && (
        <div class="why">
          <Why reason={said.reason} />
        </div>
      )}
      <Hints hints={said.hints ?? []} model={model} tryFlags={tryFlags} />
    </div>
  );
}

export function WhatIf() {
  const all = models.value;
  const isOpen = open.value;
  const asked = isOpen && chosen.value ? path() : "";
  useEffect(() => {
    if (!asked) return;
    const end = new AbortController();
    // A slider passes many values on its way.
    const late = setTimeout(() => {
      plan(asked, end.signal).catch((error: unknown) => {
        if (!end.signal.aborted) trouble.value = String(error);
      });
    }, 120);
    return () => {
      clearTimeout(late);
      end.abort();
    };
  }, [asked]);
  return (
    <section aria-labelledby="what-if">
      <details
        open={isOpen}
        onToggle={(event) => {
          open.value = event.currentTarget.open;
          if (!chosen.value) chosen.value = all[0]?.name ?? "";
        }}
      >
        <summary>
          <h2 id="what-if">What if</h2>
        </summary>
        {isOpen && (
          <>
            <p class="choices">
              <label>
                model{" "}
                <select value={chosen.value} onChange={(event) => (chosen.value = event.currentTarget.value)}>
                  {all.map((model) => (
                    <option key={model.id} value={model.name}>
                      {short(model.name, 60)}
                    </option>
                  ))}
                </select>
              </label>
              <label>
                context{" "}
                <input
                  type="range"
                  min={0}
                  max={STEPS}
                  value={step.value}
                  aria-valuetext={step.value > 0 ? `${context(step.value)} tokens` : "as configured"}
                  onInput={(event) => (step.value = Number(event.currentTarget.value))}
                />{" "}
                <output>{step.value > 0 ? context(step.value) : "as configured"}</output>
              </label>
              <label>
                slots{" "}
                <input
                  type="range"
                  min={0}
                  max={16}
                  value={slots.value}
                  aria-valuetext={slots.value > 0 ? `${slots.value} slots` : "as configured"}
                  onInput={(event) => (slots.value = Number(event.currentTarget.value))}
                />{" "}
                <output>{slots.value > 0 ? slots.value : "as configured"}</output>
              </label>
              <label>
                cache{" "}
                <select value={cache.value} onChange={(event) => (cache.value = event.currentTarget.value)}>
                  {CACHES.map((kind) => (
                    <option key={kind} value={kind}>
                      {kind || "as configured"}
                    </option>
                  ))}
                </select>
              </label>
            </p>
            {trouble.value && <p class="bad">{clip(trouble.value, 600)}</p>}
            {answer.value && <Result said={answer.value} model={all.find((model) => model.name === chosen.value)} />}
          </>
        )}
      </details>
    </section>
  );
}
