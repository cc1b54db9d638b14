// Log of one model, or of all, with a search; bounded, because an engine may write lines of any length.

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { short } from "./format";
import { models } from "./store";
import { ask, lines, problem } from "./stream";

/** Lines kept, shown at once, and characters of one line. */
const KEPT = 4000;
const SHOWN = 400;
const LONGEST = 2000;

const chosen = signal("");
const search = signal("");
const kept = signal<string[]>([]);
const trouble = signal("");
const open = signal(false);

async function read(model: string, end: AbortSignal): Promise<void> {
  const path = model ? `/logs/stream/${encodeURIComponent(model)}` : "/logs/stream";
  kept.value = [];
  trouble.value = "";
  const answer = await ask(path, { signal: end });
  if (!answer.ok || !answer.body) throw new Error(await problem(answer));
  let fresh: string[] = [];
  let drawing = 0;
  const draw = () => {
    drawing = 0;
    kept.value = [...kept.value, ...fresh].slice(-KEPT);
    fresh = [];
  };
  for await (const line of lines(answer.body, LONGEST)) {
    fresh.push(line);
    if (fresh.length > KEPT) fresh = fresh.slice(-KEPT);
    // Lines come in bursts, which are drawn together.
    if (drawing === 0) drawing = window.setTimeout(draw, 100);
  }
  trouble.value = "the log has ended";
}

/** The last lines that hold the words, whatever their case. */
export function matching(all: string[], words: string): string[] {
  const wanted = words.trim().toLowerCase();
  const found = wanted ? all.filter((line) => line.toLowerCase().includes(wanted)) : all;
  return found.slice(-SHOWN);
}

function Lines() {
  const place = useRef<HTMLPreElement>(null);
  const found = matching(kept.value, search.value);
  const text = found.join("\n");
  useEffect(() => {
    const pre = place.current;
    // A reader who has scrolled up is left there.
    if (pre && pre.scrollHeight - pre.scrollTop - pre.clientHeight < 200) pre.scrollTop = pre.scrollHeight;
  }, [text]);
  const note = search.value ? `${found.length} of ${kept.value.length} lines` : `${kept.value.length} lines`;
  return (
    <>
      <p class="none" role="status">
        {trouble.value || note}
      </p>
      <pre ref={place} tabIndex={0} aria-label="log lines" dir="ltr">
        {text}
      </pre>
    </>
  );
}

export function Logs() {
  const model = chosen.value;
  const isOpen = open.value;
  useEffect(() => {
    if (!isOpen) return;
    const end = new AbortController();
    read(model, end.signal).catch((error: unknown) => {
      if (!end.signal.aborted) trouble.value = error instanceof Error ? error.message : String(error);
    });
    return () => end.abort();
  }, [model, isOpen]);
  return (
    <section aria-labelledby="logs">
      <details open={isOpen} onToggle={(event) => (open.value = event.currentTarget.open)}>
        <summary>
          <h2 id="logs">Logs</h2>
        </summary>
        {isOpen && (
          <>
            <p class="choices">
              <label>
                of{" "}
                <select value={model} onChange={(event) => (chosen.value = event.currentTarget.value)}>
                  <option value="">all models</option>
                  {models.value.map((candidate) => (
                    <option key={candidate.id} value={candidate.name}>
                      {short(candidate.name, 60)}
                    </option>
                  ))}
                </select>
              </label>{" "}
              <label>
                with{" "}
                <input
                  type="search"
                  value={search.value}
                  maxLength={200}
                  onInput={(event) => (search.value = event.currentTarget.value)}
                />
              </label>
            </p>
            <Lines />
          </>
        )}
      </details>
    </section>
  );
}
