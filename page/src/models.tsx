// Table of models: state, claim beside measured, requests, the turn of each to leave; filter and groups.

import { signal } from "@preact/signals";
import { memo } from "preact/compat";
import { Actions } from "./act";
import { bytes, clip, ordinal, plural, seconds, short, sum, without } from "./format";
import { mayChange, mayUse, models, moved, now, toneOf } from "./store";
import type { Model, State } from "./types";

const WORDS: Record<State, string> = {
  unloaded: "not loaded",
  queued: "waits for room",
  loading: "loading",
  ready: "ready",
  draining: "finishing",
  stopping: "stopping",
  failed: "failed",
};

const ORDER: State[] = ["ready", "loading", "draining", "stopping", "queued", "failed", "unloaded"];

/** Only this text changes each second, so that a row is not drawn anew for it. */
function Since({ at }: { at: number }) {
  return <>{seconds(now.value - at)}</>;
}

function Until({ at }: { at: number }) {
  return <>{seconds(at - now.value)}</>;
}

/** What its driver has put in host memory instead of refusing it. */
function MovedToHost({ name }: { name: string }) {
  const one = moved.value.find((entry) => entry.model === name);
  return one ? <small class="bad"> {bytes(one.bytes)} moved to host memory by the driver: slow</small> : null;
}

function Memory({ model }: { model: Model }) {
  const claim = sum(model.claim);
  const measured = sum(model.measured);
  const whole = Math.max(claim, measured, 1);
  if (claim === 0 && measured === 0) {
    return model.planned === undefined ? <span class="none">–</span> : <span class="planned">{bytes(model.planned)} planned</span>;
  }
  return (
    <span class="memory">
      <span class={`gauge tone-${toneOf(model.name)}`} aria-hidden="true">
        <i style={{ width: `${(100 * measured) / whole}%` }} />
        <u style={{ left: `${(100 * claim) / whole}%` }} />
      </span>
      {measured > 0 ? <b>{bytes(measured)}</b> : <span>not yet measured</span>}{" "}
      <span class="planned">of {bytes(claim)} claimed</span>
      {model.alone && <small> whole card: need unknown</small>}
      <MovedToHost name={model.name} />
    </span>
  );
}

function Requests({ model }: { model: Model }) {
  const { in_flight: running, queued, last_used: used } = model;
  if (running > 0 || queued > 0) {
    const texts = [running > 0 ? `${running} running` : "", queued > 0 ? `${queued} waiting` : ""];
    return <>{texts.filter((text) => text).join(", ")}</>;
  }
  if (used === null) return <span class="none">none yet</span>;
  return (
    <>
      idle <Since at={model.idle_since ?? used} />
    </>
  );
}

function Speed({ model }: { model: Model }) {
  return model.speed === undefined ? null : (
    <small title="tokens a second of its last streams"> {model.speed.toFixed(model.speed < 10 ? 1 : 0)} tokens/s</small>
  );
}

function Depth({ depth }: { depth: Model["depth"] }) {
  if (!depth) return null;
  return (
    <small title={`its claim covers ${depth.covered} tokens`}>
      {" "}
      depth {depth.admitted} of {depth.full}
      {depth.waits && ", waits for memory"}
    </small>
  );
}

function FullSpeed({ spill }: { spill: Model["spill"] }) {
  if (!spill) return null;
  const beyond = spill.ms_per_1000_tokens_beyond;
  const price = beyond === null ? "" : `; each 1000 tokens beyond take ${beyond} ms of a token`;
  return (
    <small title={`${bytes(spill.on_host)} of its cache are in host memory${price}`}>
      {" "}
      full speed to {spill.full_speed_tokens} tokens
    </small>
  );
}

/** Its turn to leave, and why. */
function Turn({ model }: { model: Model }) {
  const outlook = model.outlook;
  if (outlook?.stops) return <>leaves: {clip(outlook.stops.text, 200)}</>;
  if (model.state === "failed") {
    const cause = clip(without(model.name, model.last_failure?.text ?? ""), 240);
    return (
      <>
        <span class="bad">{cause}</span>
        {model.pinned && " (pinned)"}
      </>
    );
  }
  if (model.pinned) {
    return (
      <>
        pinned
        {model.pinned_until !== undefined && (
          <>
            {" for "}
            <Until at={model.pinned_until} />
          </>
        )}
      </>
    );
  }
  const expires = outlook?.expires !== undefined && (
    <>
      {", at the latest in "}
      <Until at={outlook.expires} />
    </>
  );
  switch (outlook?.standing) {
    case "idle":
      return (
        <>
          {outlook.leaves === 1 ? "next to leave: idle, and quick to load again" : `${ordinal(outlook.leaves ?? 0)} to leave`}
          {expires}
        </>
      );
    case "busy":
      return <>{ordinal(outlook.leaves ?? 0)} to leave, after its requests</>;
    case "protected":
      if (model.state === "loading") return <>loads{model.queued > 0 && ` for ${plural(model.queued, "request")}`}</>;
      return model.held_until === undefined ? (
        <>stays: busy or just loaded</>
      ) : (
        <>
          held for its clients, <Until at={model.held_until} />
        </>
      );
    case "promised":
      return <>its memory is promised</>;
    default:
      return <span class="none">–</span>;
  }
}

const Row = memo(function Row({ model, buttons }: { model: Model; buttons: boolean }) {
  const progress = model.progress?.value;
  return (
    <tr data-model={short(model.name, 80)} data-state={model.state}>
      <th scope="row">
        <i class={`key model tone-${toneOf(model.name)}`} />
        <bdi title={short(model.name, 200)}>{short(model.name, 120)}</bdi>
      </th>
      <td data-label="State">
        <span class={`state ${model.state}`}>{WORDS[model.state]}</span>
        {model.state === "loading" && (
          <progress aria-label={`progress of ${short(model.name, 80)}`} value={progress ?? undefined} max={1} />
        )}
      </td>
      <td data-label="Memory">
        <Memory model={model} />
      </td>
      <td data-label="Requests">
        <Requests model={model} />
        <Speed model={model} />
        <Depth depth={model.depth} />
        <FullSpeed spill={model.spill} />
      </td>
      <td data-label="Next">
        <Turn model={model} />
      </td>
      {buttons && (
        <td>
          <Actions model={model} />
        </td>
      )}
    </tr>
  );
});

type Group = { key: string; title: string; models: Model[] };

/** Groups in their order: by state, by card, or all as one. */
function grouped(all: Model[], by: Grouping, labels: Map<string, string>): Group[] {
  const sorted = [...all].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state));
  if (by === "none") return [{ key: "all", title: "", models: sorted }];
  const groups = new Map<string, Group>();
  for (const model of sorted) {
    const card = model.claim[0]?.card;
    const byCard = { key: card ?? "", title: card === undefined ? "on no card" : (labels.get(card) ?? card) };
    const { key, title } = by === "card" ? byCard : { key: model.state, title: WORDS[model.state] };
    const group = groups.get(key) ?? { key, title, models: [] };
    group.models.push(model);
    groups.set(key, group);
  }
  return [...groups.values()];
}

type Grouping = "state" | "card" | "none";

/** With fewer models a filter only takes room. */
const MANY = 9;

const filter = signal("");
const grouping = signal<Grouping>("state");
/** Groups that were opened or closed by hand. On a phone, many idle names would hide all below them. */
const toggled = signal(new Map<string, boolean>());
const narrow = matchMedia("(max-width: 760px)");

function isOpen(group: Group): boolean {
  const isLong = narrow.matches && group.key === "unloaded" && group.models.length >= MANY;
  return filter.value !== "" || (toggled.value.get(group.key) ?? !isLong);
}

function GroupHead({ group, columns }: { group: Group; columns: number }) {
  const open = isOpen(group);
  return (
    <tr class="group">
      <th colSpan={columns} scope="rowgroup">
        <button
          type="button"
          class="plain"
          aria-expanded={open}
          onClick={() => (toggled.value = new Map(toggled.value).set(group.key, !open))}
        >
          {short(group.title, 60)} <small>{group.models.length}</small>
        </button>
      </th>
    </tr>
  );
}

function Choice() {
  return (
    <p class="choices" role="search">
      <label>
        filter{" "}
        <input
          type="search"
          value={filter.value}
          onInput={(event) => (filter.value = event.currentTarget.value)}
        />
      </label>
      <label>
        group by{" "}
        <select value={grouping.value} onChange={(event) => (grouping.value = event.currentTarget.value as Grouping)}>
          <option value="state">state</option>
          <option value="card">card</option>
          <option value="none">nothing</option>
        </select>
      </label>
    </p>
  );
}

export function Models({ labels }: { labels: Map<string, string> }) {
  const all = models.value;
  const isMany = all.length >= MANY;
  const words = filter.value.toLowerCase().split(/\s+/);
  const fits = (model: Model) => words.every((word) => `${model.name} ${WORDS[model.state]}`.toLowerCase().includes(word));
  const shown = isMany ? all.filter(fits) : all;
  const groups = grouped(shown, isMany ? grouping.value : "none", labels);
  const buttons = mayChange() || mayUse();
  const up = all.filter((model) => model.state === "ready").length;
  return (
    <section aria-labelledby="models">
      <h2 id="models">
        Models {all.length > 0 && <small>{`${up} of ${plural(all.length, "model")} ready`}</small>}
      </h2>
      {all.length === 0 && <p class="none">The configuration has no model.</p>}
      {isMany && <Choice />}
      {shown.length === 0 && all.length > 0 && <p role="status">No model fits the filter.</p>}
      <table hidden={shown.length === 0}>
        <thead>
          <tr>
            <th scope="col">Model</th>
            <th scope="col">State</th>
            <th scope="col">
              Memory, <span class="planned">claimed</span>
            </th>
            <th scope="col">Requests</th>
            <th scope="col">What happens next</th>
            {buttons && <th scope="col">Try and change</th>}
          </tr>
        </thead>
        {groups.map((group) => (
          <tbody key={group.key}>
            {group.title && <GroupHead group={group} columns={buttons ? 6 : 5} />}
            {isOpen(group) && group.models.map((model) => <Row key={model.id} model={model} buttons={buttons} />)}
          </tbody>
        ))}
      </table>
    </section>
  );
}
