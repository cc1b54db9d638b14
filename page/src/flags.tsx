// Flags of a model: changed in a text with the plan beside it, saved into the configuration, undone.

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { clip, short } from "./format";
import { type Answer, PlanBars, Result } from "./plan";
import { models } from "./store";
import { ask, problem } from "./stream";

type Written = { model: string; flags: string; file: string; digest: string; undo: boolean; refusal?: string };
type Planned = Answer & { warnings: string[] };

/** Spellings of the flags that hints use; the first is the one that hints have. */
const SPELLINGS = [
  ["-c", "--ctx-size"],
  ["-ctk", "--cache-type-k"],
  ["-ctv", "--cache-type-v"],
  ["-ub", "--ubatch-size"],
  ["-np", "--parallel"],
  ["-fa", "--flash-attn"],
  ["-ngl", "--gpu-layers", "--n-gpu-layers"],
  ["--n-cpu-moe", "-ncmoe"],
  ["-ts", "--tensor-split"],
  ["-sm", "--split-mode"],
];
const CACHES = ["f16", "q8_0", "q5_1", "q4_0"];

const editing = signal<Written | null>(null);
const text = signal("");
const planned = signal<Planned | null>(null);
const trouble = signal("");
const note = signal("");
/** True after the file was changed by another. */
const isStale = signal(false);

/** Puts flags into a line of flags: in the place of the same ones, or at its end. */
export function withFlags(line: string, flags: string): string {
  const words = flags.split(/\s+/).filter((word) => word);
  let changed = line;
  for (let at = 0; at < words.length; at += 1) {
    const flag = words[at]!;
    const value = words[at + 1] !== undefined && !/^-\D/.test(words[at + 1]!) ? words[(at += 1)]! : "";
    const names = (SPELLINGS.find((all) => all.includes(flag)) ?? [flag]).map((name) => name.replace(/[-]/g, "\\-"));
    const place = new RegExp(`(^|\\s)(${names.join("|")})${value ? "([\\s=]+)\\S+" : ""}(?=\\s|$)`);
    if (!place.test(changed)) changed = `${changed.trimEnd()} ${flag}${value && ` ${value}`}`.trimStart();
    else if (value) changed = changed.replace(place, (_, before, name, gap) => `${before}${name}${gap}${value}`);
  }
  return changed;
}

/** The value of a flag in a line; empty if it is not there. */
function given(line: string, flag: string): string {
  const names = SPELLINGS.find((all) => all[0] === flag) ?? [flag];
  const words = line.split(/[\s=]+/);
  const at = words.findLastIndex((word) => names.includes(word));
  return at < 0 ? "" : (words[at + 1] ?? "");
}

/** Opens the dialog, with these flags put over those of the file. */
export function editFlags(model: string, flags = ""): void {
  editing.value = { model, flags: "", file: "", digest: "", undo: false };
  [text.value, planned.value, trouble.value, note.value] = ["", null, "", ""];
  void load(model, (line) => (flags ? withFlags(line, flags) : line));
}

async function load(model: string, begin: (line: string) => string): Promise<void> {
  const answer = await ask(`/api/flags?${new URLSearchParams({ model }).toString()}`).catch(String);
  if (typeof answer === "string" || !answer.ok) {
    trouble.value = typeof answer === "string" ? answer : await problem(answer);
    return;
  }
  const written = (await answer.json()) as Written;
  [editing.value, text.value, trouble.value, isStale.value] = [written, begin(written.flags), "", false];
}

async function plan(model: string, flags: string, end: AbortSignal): Promise<void> {
  const answer = await ask("/api/flags/plan", { method: "POST", body: JSON.stringify({ model, flags }), signal: end });
  const [told, why] = answer.ok ? [(await answer.json()) as Planned, ""] : [null, await problem(answer)];
  if (!end.aborted) [planned.value, trouble.value] = [told, why];
}

/** Writes the file: these flags, or the text before the last change. */
async function write(open: Written, path: string, order: object): Promise<void> {
  const body = JSON.stringify({ ...order, digest: open.digest });
  const answer = await ask(path, { method: "POST", body }).catch(String);
  if (typeof answer === "string" || !answer.ok) {
    isStale.value = typeof answer !== "string" && answer.status === 409;
    trouble.value = typeof answer === "string" ? answer : await problem(answer);
    return;
  }
  const { reload } = (await answer.json()) as { reload: string[] };
  await load(open.model, (line) => line);
  // The button that had the focus may be off now.
  document.querySelector<HTMLElement>("dialog.flags textarea")?.focus();
  note.value = [path.endsWith("undo") ? "Undone." : "Saved.", ...reload].join(" ");
}

function QuickChoice({ name, flag, values }: { name: string; flag: string; values: string[] }) {
  const now = given(text.value, flag);
  const all = now && !values.includes(now) ? [now, ...values] : values;
  return (
    <label>
      {name}{" "}
      <select
        value={now}
        onChange={(event) => {
          const value = event.currentTarget.value;
          const both = flag === "-ctk" ? `-ctk ${value} -ctv ${value}` : `${flag} ${value}`;
          if (value) text.value = withFlags(text.value, both);
        }}
      >
        {!now && <option value="">as it is</option>}
        {all.map((value) => (
          <option key={value} value={value}>
            {value}
          </option>
        ))}
      </select>
    </label>
  );
}

const CONTEXTS = Array.from({ length: 10 }, (_, at) => String(2048 * 2 ** at));
const SLOTS = Array.from({ length: 6 }, (_, at) => String(2 ** at));

function Editor({ open }: { open: Written }) {
  const isWritten = text.value === open.flags;
  const isReady = planned.value !== null && !trouble.value && !open.refusal && !isWritten;
  return (
    <>
      <textarea
        aria-label="flags of llama-server"
        rows={Math.min(10, Math.max(3, text.value.split("\n").length))}
        spellcheck={false}
        autocomplete="off"
        value={text.value}
        onInput={(event) => ([text.value, note.value] = [event.currentTarget.value, ""])}
      />
      <p class="choices">
        <QuickChoice name="context" flag="-c" values={CONTEXTS} />
        <QuickChoice name="slots" flag="-np" values={SLOTS} />
        <QuickChoice name="cache" flag="-ctk" values={CACHES} />
      </p>
      {planned.value && (
        <>
          <PlanBars said={planned.value} model={open.model} />
          <Result said={planned.value} model={models.value.find((one) => one.name === open.model)} tryFlags={(flags) => (text.value = withFlags(text.value, flags))} />
          {planned.value.warnings.map((warning) => (
            <p key={warning} class="why">
              {clip(warning, 600)}
            </p>
          ))}
        </>
      )}
      {open.refusal && <p class="why">{clip(open.refusal, 600)}</p>}
      <p class="choices">
        <button
          type="button"
          class="primary"
          disabled={!isReady}
          onClick={() => void write(open, "/api/flags", { model: open.model, flags: text.value })}
        >
          Save
        </button>
        {open.undo && (
          <button type="button" onClick={() => void write(open, "/api/flags/undo", {})}>
            Undo the last save
          </button>
        )}
        {!isWritten && (
          <button type="button" onClick={() => (text.value = open.flags)}>
            As in the file
          </button>
        )}
      </p>
    </>
  );
}

/** What a save does to the model as it is. */
function consequence(name: string): string {
  const model = models.value.find((one) => one.name === name);
  const runs = model !== undefined && model.state !== "unloaded" && model.state !== "failed";
  return runs
    ? "A save stops the model after its requests; the next request loads it with the new flags."
    : "The next load has the new flags.";
}

export function FlagsDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const open = editing.value;
  const [model, flags] = [open?.model, text.value];
  const isRead = open !== null && open.digest !== "";
  useEffect(() => {
    if (open && !dialog.current?.open) dialog.current?.showModal();
  }, [open]);
  useEffect(() => {
    if (!isRead || model === undefined) return;
    const end = new AbortController();
    const late = setTimeout(() => {
      plan(model, flags, end.signal).catch((error: unknown) => {
        if (!end.signal.aborted) trouble.value = String(error);
      });
    }, 150);
    return () => {
      clearTimeout(late);
      end.abort();
    };
  }, [isRead, model, flags, open?.digest]);
  if (!open) return null;
  const close = () => {
    dialog.current?.close();
    editing.value = null;
  };
  return (
    <dialog ref={dialog} class="flags" onClose={() => (editing.value = null)} aria-labelledby="flags-title">
      <h2 id="flags-title">
        Flags of <bdi>{short(open.model, 80)}</bdi>
      </h2>
      {isRead && (
        <p>
          <small>
            in <bdi>{clip(open.file, 200)}</bdi>. {consequence(open.model)}
          </small>
        </p>
      )}
      {isRead && <Editor open={open} />}
      <p role="status" class="note">
        {clip(note.value, 600)}
      </p>
      <p class="bad" role="alert">
        {clip(trouble.value, 1000)}
      </p>
      <p class="choices">
        {isStale.value && (
          <button type="button" onClick={() => void load(open.model, () => text.value)}>
            Read the file again
          </button>
        )}
        <button type="button" onClick={close}>
          Close
        </button>
      </p>
    </dialog>
  );
}
