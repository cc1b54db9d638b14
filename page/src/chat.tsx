// Chat with a model: streams its answer, stops it, takes images, and says what a request waits for.

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { bytes, clip, plural, seconds, short } from "./format";
import { Hints } from "./hints";
import { type Picture, Thumbnail, shrink } from "./picture";
import { mayUse, models, now, toneOf } from "./store";
import { type Refusal, ask, lines, refusal } from "./stream";
import type { Model } from "./types";
import { Why } from "./waiting";

/** A turn of the conversation. An answer has its speed or its refusal once it has ended. */
type Turn = {
  role: "user" | "assistant";
  model: string;
  text: string;
  thoughts: string;
  picture?: Picture | undefined;
  end?: string;
  refusal?: Refusal;
};

type Piece = {
  error?: { message: string };
  choices?: { delta?: { content?: string | null; reasoning_content?: string | null } }[];
  usage?: { completion_tokens?: number } | null;
  timings?: { predicted_n?: number; predicted_per_second?: number };
};

/** An event of an answer that is longer is none. */
const LONGEST = 4 << 20;

const open = signal(false);
const chosen = signal("");
const draft = signal("");
const picture = signal<Picture | undefined>(undefined);
const trouble = signal("");
const turns = signal<Turn[]>([]);
const running = signal<AbortController | null>(null);
const since = signal(0);

/** Opens the chat with a model. */
export function chatWith(name: string): void {
  open.value = true;
  chosen.value = name;
  requestAnimationFrame(() => {
    const field = document.querySelector<HTMLElement>("#chat-draft");
    field?.closest("section")?.scrollIntoView({ block: "start" });
    field?.focus({ preventScroll: true });
  });
}

/** The conversation without messages that got no answer: many templates refuse two of one role in turn. */
function messages(): object[] {
  const said = turns.value.filter(({ role, text }, at, all) => (role === "user" ? all[at + 1]?.text !== "" : text !== ""));
  return said.map(({ role, text, picture: shown }) => ({
    role,
    content: shown
      ? [{ type: "text", text }, { type: "image_url", image_url: { url: shown.url } }]
      : text,
  }));
}

function update(change: (turn: Turn) => Turn): void {
  const last = turns.value.at(-1)!;
  turns.value = [...turns.value.slice(0, -1), change(last)];
}

/** Speed as the engine reports it, or by its count of tokens; nothing is guessed. */
function speed(last: Piece, first: number): string {
  const { timings, usage } = last;
  const tokens = timings?.predicted_n ?? usage?.completion_tokens;
  const took = (performance.now() - first) / 1000;
  const rate = timings?.predicted_per_second ?? (tokens && tokens > 1 && took > 0 ? (tokens - 1) / took : undefined);
  const each = rate === undefined ? "" : `, ${rate.toFixed(rate < 10 ? 1 : 0)} tokens/s`;
  return tokens === undefined ? "" : `${plural(tokens, "token")}${each}`;
}

async function read(body: ReadableStream<Uint8Array>): Promise<void> {
  let first = 0;
  const last: Piece = {};
  for await (const line of lines(body, LONGEST)) {
    if (!line.startsWith("data:")) continue;
    const data = line.slice(5).trim();
    if (data === "[DONE]") break;
    const piece = JSON.parse(data) as Piece;
    if (piece.error) throw new Error(piece.error.message);
    if (piece.usage) last.usage = piece.usage;
    if (piece.timings) last.timings = piece.timings;
    const { content, reasoning_content: thought } = piece.choices?.[0]?.delta ?? {};
    if (!content && !thought) continue;
    first ||= performance.now();
    update((turn) => ({ ...turn, text: turn.text + (content ?? ""), thoughts: turn.thoughts + (thought ?? "") }));
  }
  update((turn) => ({ ...turn, end: speed(last, first) }));
}

async function send(): Promise<void> {
  const text = draft.value.trim();
  if (running.value || (!text && !picture.value)) return;
  const [end, model] = [new AbortController(), chosen.value];
  turns.value = [...turns.value, { role: "user", model, text, thoughts: "", picture: picture.value }];
  const body = { model, messages: messages(), stream: true, stream_options: { include_usage: true } };
  turns.value = [...turns.value, { role: "assistant", model, text: "", thoughts: "" }];
  [draft.value, picture.value, running.value, since.value] = ["", undefined, end, now.value];
  try {
    const headers = { "content-type": "application/json" };
    const init = { method: "POST", body: JSON.stringify(body), headers, signal: end.signal };
    const answer = await ask("/v1/chat/completions", init);
    if (answer.ok && answer.body) await read(answer.body);
    else {
      const refused = await refusal(answer);
      update((turn) => ({ ...turn, refusal: refused }));
    }
  } catch (error) {
    const told = error instanceof Error ? error.message : String(error);
    update((turn) => (end.signal.aborted ? { ...turn, end: "stopped" } : { ...turn, refusal: { text: told, hints: [] } }));
  } finally {
    running.value = null;
  }
}

/** What the request waits for until the first piece of its answer. */
function Ahead({ model }: { model: Model | undefined }) {
  const wait = model?.outlook?.wait;
  const waited = seconds(now.value - since.value);
  if (!wait) return <p class="none">{model?.state === "loading" ? `loads, ${waited}` : `waits for its first token, ${waited}`}</p>;
  return (
    <div class="why" data-chat-waits>
      <p>
        waits for {waited}
        {model.queued > 1 && <>, with {plural(model.queued - 1, "other request")}</>}
        {wait.stops.length > 0 && <>; {clip(wait.stops.join(", "), 200)} must leave first</>}
      </p>
      <Why reason={wait.reason} />
    </div>
  );
}

/** Text with its blocks of code; nothing else of Markdown is drawn. */
function Said({ text }: { text: string }) {
  return (
    <>
      {text.split(/^```.*\n?/m).map((part, at) =>
        at % 2 === 0 ? part.trim() && <p key={at}>{part.trim()}</p> : <pre key={at} tabIndex={0}>{part}</pre>,
      )}
    </>
  );
}

function Shown({ turn, isRunning }: { turn: Turn; isRunning: boolean }) {
  const isAnswer = turn.role === "assistant";
  const model = models.value.find((one) => one.name === turn.model);
  return (
    <li class={turn.role} data-turn={isAnswer && isRunning ? "running" : turn.role}>
      <b>{isAnswer ? <bdi>{short(turn.model, 60)}</bdi> : "You"}</b>
      {turn.picture && <Thumbnail picture={turn.picture} />}
      {turn.thoughts && (
        <details>
          <summary>Thoughts</summary>
          <Said text={turn.thoughts} />
        </details>
      )}
      <Said text={turn.text} />
      {isAnswer && isRunning && !turn.text && !turn.thoughts && <Ahead model={model} />}
      {turn.end && <small>{turn.end}</small>}
      {turn.refusal && (
        <div role="alert">
          <p class="bad">{clip(turn.refusal.text, 1000)}</p>
          <Hints hints={turn.refusal.hints} model={model} />
        </div>
      )}
    </li>
  );
}

function PictureChoice() {
  const take = (file: File | undefined) => {
    trouble.value = "";
    if (!file) return;
    shrink(file).then(
      (taken) => (picture.value = taken),
      () => (trouble.value = `${clip(file.name, 80)} is no picture that this browser reads.`),
    );
  };
  const taken = picture.value;
  return (
    <label class="picture">
      {taken ? `${clip(taken.name, 40)}, ${bytes(taken.url.length)}` : "Picture …"}
      <input type="file" accept="image/*" class="hidden" onChange={(event) => take(event.currentTarget.files?.[0])} />
    </label>
  );
}

function Conversation() {
  const list = useRef<HTMLDivElement>(null);
  const all = turns.value;
  useEffect(() => list.current?.scrollTo(0, list.current.scrollHeight), [all]);
  if (all.length === 0) return null;
  return (
    <div class="turns" ref={list} role="log" tabIndex={0} aria-label="conversation" aria-busy={running.value !== null}>
      <ol>
        {all.map((turn, at) => (
          <Shown key={at} turn={turn} isRunning={running.value !== null && at === all.length - 1} />
        ))}
      </ol>
    </div>
  );
}

function Composer({ model }: { model: Model | undefined }) {
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <textarea
        id="chat-draft"
        aria-label={`message to ${short(model?.name ?? "", 80)}`}
        placeholder="Message"
        rows={2}
        value={draft.value}
        onInput={(event) => (draft.value = event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          void send();
        }}
      />
      <p class="choices">
        {running.value ? (
          <button type="button" class="primary" onClick={() => running.value?.abort()}>
            Stop
          </button>
        ) : (
          <button type="submit" class="primary" disabled={!draft.value.trim() && !picture.value}>
            Send
          </button>
        )}
        {model?.images && <PictureChoice />}
        {turns.value.length > 0 && !running.value && (
          <button type="button" onClick={() => (turns.value = [])}>
            New chat
          </button>
        )}
      </p>
      <p class="bad" role="alert">
        {trouble.value}
      </p>
    </form>
  );
}

export function Chat() {
  const all = models.value;
  if (!mayUse() || all.length === 0) return null;
  const model = all.find((one) => one.name === chosen.value) ?? all.find((one) => one.state === "ready") ?? all[0];
  if (open.value && model && model.name !== chosen.value) chosen.value = model.name;
  return (
    <section aria-labelledby="chat" class="chat">
      <details open={open.value} onToggle={(event) => (open.value = event.currentTarget.open)}>
        <summary>
          <h2 id="chat">Chat</h2>
        </summary>
        {open.value && (
          <>
            <p class="choices">
              <label>
                <i class={`key model tone-${toneOf(chosen.value)}`} />
                model{" "}
                <select value={chosen.value} onChange={(event) => (chosen.value = event.currentTarget.value)}>
                  {all.map((one) => (
                    <option key={one.id} value={one.name}>
                      {short(one.name, 60)}
                    </option>
                  ))}
                </select>
              </label>
              {model && <small>{model.state === "ready" ? "loaded" : "loads with the first message"}</small>}
            </p>
            <Conversation />
            <Composer model={model} />
          </>
        )}
      </details>
    </section>
  );
}
