// Queue: the models that requests wait for, with the cause and the bound of each wait; and the failures.

import { signal } from "@preact/signals";
import { clip, clock, plural, seconds, short } from "./format";
import { Hints, WaysOut } from "./hints";
import { marks, mayOperate, models, names, now } from "./store";
import { ask } from "./stream";
import type { Mark, Model, Reason, Wait } from "./types";

/** Shown at most, so that a tree of reasons stays readable. */
const BRANCHES = 6;
const DEPTH = 5;

export function Why({ reason, depth = 0 }: { reason: Reason; depth?: number }) {
  const because = (reason.because ?? []).slice(0, BRANCHES);
  const more = (reason.because?.length ?? 0) - because.length;
  return (
    <>
      {clip(reason.text, 600)}
      {because.length > 0 && depth < DEPTH && (
        <ul>
          {because.map((cause, at) => (
            <li key={at}>
              <Why reason={cause} depth={depth + 1} />
            </li>
          ))}
          {more > 0 && <li>{plural(more, "more cause")}</li>}
        </ul>
      )}
    </>
  );
}

function Waiter({ model, wait }: { model: Model; wait: Wait }) {
  const many = model.queued > 0 ? plural(model.queued, "request") : "an operator";
  return (
    <li data-waits={short(model.name, 80)}>
      <p>
        <b>
          <bdi>{short(model.name, 80)}</bdi>
        </b>
        : {many} for {seconds(now.value - wait.since)}
        {wait.until !== null && <>, at most {seconds(wait.until - now.value)} more</>}
        {wait.stops.length > 0 && <> · {clip(wait.stops.join(", "), 200)} must leave first</>}
      </p>
      <div class="why">
        <Why reason={wait.reason} />
      </div>
      {wait.cause === "room" && <WaysOut model={model} again={false} />}
    </li>
  );
}

export function Waiting() {
  const waiting = models.value.filter((model) => model.outlook?.wait);
  if (waiting.length === 0) return null;
  const requests = waiting.reduce((count, model) => count + model.queued, 0);
  return (
    <section aria-labelledby="waiting">
      <h2 id="waiting">
        Waiting <small>{plural(requests, "request")}</small>
      </h2>
      <ul class="list">
        {waiting.map((model) => (
          <Waiter key={model.id} model={model} wait={model.outlook!.wait!} />
        ))}
      </ul>
    </section>
  );
}

/** What the engine said in proof, by failure. */
const proofs = signal(new Map<number, string[]>());

/** Asks for the lines of the engine, which the status document does not hold: they may quote a prompt. */
async function prove(id: number): Promise<void> {
  if (!mayOperate() || proofs.peek().has(id)) return;
  const answer = await ask("/api/failures").catch(() => undefined);
  if (!answer?.ok) return;
  const { failures } = (await answer.json()) as { failures: { id: number; reason: Reason }[] };
  proofs.value = new Map(failures.map((failure) => [failure.id, said(failure.reason)]));
}

function said(reason: Reason): string[] {
  const own = reason.code === "engine_said" ? [reason.text] : [];
  return [...own, ...(reason.because ?? []).flatMap(said)].slice(0, 8);
}

/** The time of day; with the date if it was on another one. */
function When({ at }: { at: number }) {
  const ago = now.value - at;
  return <time>{ago < 20 * 3600 ? clock(at, now.value) : `${seconds(ago)} ago`}</time>;
}

function Failure({ mark, open }: { mark: Mark; open: boolean }) {
  const { reason, hints, times } = mark.failure!;
  const whole = mark.model === undefined ? (mark.name ?? undefined) : names.get(mark.model);
  // A refusal of a request has no number of a model; its reason begins with the name.
  const isMeant = ({ id, name }: Model) =>
    id === mark.model || name === whole || (whole === undefined && reason.text.startsWith(`${name} `));
  const model = models.value.find(isMeant);
  // Most reasons begin with the model's name.
  const name = whole && !reason.text.startsWith(whole) ? whole : undefined;
  return (
    <li data-failure={mark.kind}>
      <details open={open} onToggle={(event) => event.currentTarget.open && void prove(mark.failure!.id)}>
        <summary>
          <When at={mark.at} />{" "}
          <span class="state failed">{mark.kind}</span>
          {name !== undefined && (
            <>
              {" "}
              <b>
                <bdi>{short(name, 80)}</bdi>
              </b>
            </>
          )}{" "}
          {clip(reason.text, 300)}
          {times > 1 && <small> {times} times</small>}
        </summary>
        <div class="why">
          {(reason.because ?? []).length > 0 && (
            <ul>
              {(reason.because ?? []).slice(0, BRANCHES).map((cause, at) => (
                <li key={at}>
                  <Why reason={cause} />
                </li>
              ))}
            </ul>
          )}
          {(proofs.value.get(mark.failure!.id) ?? []).map((line, at) => (
            <code key={at}>{clip(line, 600)}</code>
          ))}
          <Hints hints={hints} model={model} />
          {model && <WaysOut model={model} again={mark.kind === "failed"} />}
        </div>
      </details>
    </li>
  );
}

export function Failures() {
  const failures = marks.value.filter((mark) => mark.failure).reverse().slice(0, 32);
  if (failures.length === 0) return null;
  return (
    <section aria-labelledby="failures">
      <h2 id="failures">Failures</h2>
      <ul class="list">
        {failures.map((mark, at) => (
          <Failure key={mark.failure!.id} mark={mark} open={at === 0} />
        ))}
      </ul>
    </section>
  );
}
