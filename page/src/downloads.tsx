// Downloads: progress of the models that the daemon fetches, and those that failed.

import { signal } from "@preact/signals";
import { bytes, clip, short } from "./format";
import { downloads, mayOperate } from "./store";
import { ask, problem } from "./stream";
import type { Download } from "./types";

const outcome = signal("");

async function cancel(name: string): Promise<void> {
  const answer = await ask(`/models?${new URLSearchParams({ model: name }).toString()}`, { method: "DELETE" }).catch(String);
  outcome.value = typeof answer === "string" ? answer : answer.ok ? "" : await problem(answer);
}

/** What has come of a download, in words. */
export function progress(item: Download): string {
  const { done, total } = item;
  if (total === undefined || total === null || done === undefined) return "begins";
  const part = total > 0 ? `, ${Math.floor((Math.min(done, total) / total) * 100)} %` : "";
  return `${bytes(done)} of ${bytes(total)}${part}`;
}

function Item({ item }: { item: Download }) {
  const name = short(item.name, 120);
  return (
    <li data-download={name}>
      <p>
        <b>
          <bdi>{name}</bdi>
        </b>
        {item.error !== undefined ? (
          <>
            {" "}
            <span class="state failed">failed</span> {clip(item.error, 600)}
          </>
        ) : (
          <>
            {" "}
            <progress max={item.total ?? 1} value={item.done ?? 0} aria-label={`Download of ${name}`} /> {progress(item)}
            {mayOperate() && (
              <>
                {" "}
                <button type="button" class="small" aria-label={`Cancel ${name}`} onClick={() => void cancel(item.name)}>
                  Cancel
                </button>
              </>
            )}
          </>
        )}
      </p>
      {item.memory && <p class="why">{clip(item.memory, 300)}</p>}
    </li>
  );
}

export function Downloads() {
  if (downloads.value.length === 0) return null;
  return (
    <section aria-labelledby="downloads">
      <h2 id="downloads">Downloads</h2>
      <ul class="list">
        {downloads.value.map((item) => (
          <Item key={item.name} item={item} />
        ))}
      </ul>
      <p class="bad" role="alert">
        {clip(outcome.value, 600)}
      </p>
    </section>
  );
}
