// Bar of one card: what is in use by holder, what is claimed and not yet held, and the load line.

import { memo } from "preact/compat";
import { bytes, clip, seconds, short } from "./format";
import { YieldAction } from "./act";
import { mayOperate, now, toneOf } from "./store";
import type { Card, Host, OtherCard, Part, Term } from "./types";

type Piece = { key: string; label: string; bytes: number; look: string; first: boolean };

/** Holders that are named below a bar; the bar itself shows all. */
const NAMED = 9;
const UNKNOWN = "not attributed";

export function partName(part: Part, onHost = false): string {
  if (part.kind === "unknown") return onHost ? "other programs and the kernel" : UNKNOWN;
  if (part.kind === "foreign") return `${part.name || "process"} (${part.process ?? "?"})`;
  return part.name ?? "";
}

/** Pieces of the bar from left to right; their bytes add up to the driver's figure. */
export function pieces(parts: Part[]): Piece[] {
  // Others first: what they hold moves the models' room, not the other way round.
  const rank = { foreign: 0, unknown: 1, model: 2 };
  const sorted = [...parts].sort((a, b) => rank[a.kind] - rank[b.kind]);
  return sorted.flatMap((part, at): Piece[] => {
    const name = partName(part);
    const tone = look(part);
    const terms: Term[] = part.terms?.length ? part.terms : [["all", part.bytes]];
    return terms.map(([term, count], number) => ({
      key: `${at}-${term}`,
      label: term === "all" ? name : `${name}: ${term}`,
      bytes: count,
      look: `${tone} term-${term}`,
      first: number === 0,
    }));
  });
}

/** A model has one colour on all cards and in the time line. */
function look(part: Part): string {
  return part.kind === "model" ? `model tone-${toneOf(part.name ?? "")}` : part.kind;
}

function percent(part: number, total: number): string {
  return `${((100 * part) / Math.max(1, total)).toFixed(3)}%`;
}

/** Bytes that models may still take: claimed, and not yet held. */
export function promised(card: Card): number {
  return card.holders.reduce((left, holder) => left + Math.max(0, holder.claim - (holder.measured ?? 0)), 0);
}

function CardBar({ card }: { card: Card }) {
  const parts = card.parts ?? [];
  const used = card.used ?? 0;
  const ahead = Math.min(promised(card), Math.max(0, card.total - used));
  const claimed = Math.min(card.total, used + ahead);
  const label = `${short(card.name, 80)}: ${bytes(used)} of ${bytes(card.total)} in use`;
  return (
    <div class="bar" role="img" aria-label={label} data-used={used}>
      {pieces(parts).map((piece) => (
        <span
          key={piece.key}
          class={`${piece.look}${piece.first ? " first" : ""}`}
          style={{ width: percent(piece.bytes, card.total) }}
          title={`${clip(piece.label, 120)}  ${bytes(piece.bytes)}`}
          data-bytes={piece.bytes}
        />
      ))}
      {ahead > 0 && (
        <span class="ahead" style={{ width: percent(ahead, card.total) }} title={`claimed, not yet held  ${bytes(ahead)}`} />
      )}
      {claimed > used && <i class="tick" style={{ left: percent(claimed, card.total) }} />}
      {card.limit !== null && card.limit < card.total && (
        <i class="line" style={{ left: percent(card.limit, card.total) }} title={`load line at ${bytes(card.limit)}`} />
      )}
    </div>
  );
}

function Left({ until }: { until: number }) {
  return <> for {seconds(until - now.value)}</>;
}

function Legend({ card }: { card: Card }) {
  const claims = new Map(card.holders.map((holder) => [holder.model, holder.claim]));
  const rank = (part: Part) => (part.kind === "model" ? 1 : 0);
  const all = [...(card.parts ?? [])].sort((a, b) => rank(a) - rank(b) || b.bytes - a.bytes);
  const parts = all.slice(0, NAMED);
  const rest = all.slice(NAMED);
  const ahead = promised(card);
  const loading = card.holders.filter((holder) => !holder.measured);
  return (
    <ul class="legend">
      {parts.map((part, at) => {
        const claim = part.kind === "model" ? claims.get(part.name ?? "") : undefined;
        return (
          <li key={at}>
            <i class={`key ${look(part)}`} />
            <bdi>{short(partName(part, card.id === "host"), 48)}</bdi> <b>{bytes(part.bytes)}</b>
            {claim !== undefined && <span class="planned"> of {bytes(claim)} claimed</span>}
          </li>
        );
      })}
      {rest.length > 0 && (
        <li>
          {rest.length} more <b>{bytes(rest.reduce((total, part) => total + part.bytes, 0))}</b>
        </li>
      )}
      {loading.map((holder) => (
        <li key={`l${holder.run}`}>
          <i class={`key model tone-${toneOf(holder.model)}`} />
          <bdi>{short(holder.model, 48)}</bdi> <span class="planned">{bytes(holder.claim)} claimed</span>
        </li>
      ))}
      <li>
        <i class="key" />
        free <b>{bytes(Math.max(0, card.total - (card.used ?? 0) - ahead))}</b>
        {ahead > 0 && <span class="planned"> beside {bytes(ahead)} claimed</span>}
        {card.limit !== null && card.limit < card.total && <span> · load line {bytes(card.limit)}</span>}
      </li>
      {card.yield && (
        <li>
          kept free for other programs <b>{bytes(card.yield.bytes)}</b>
          {card.yield.until !== null && <Left until={card.yield.until} />}
          {card.yield.lacks > 0 && <>, of which models still hold {bytes(card.yield.lacks)}</>}
        </li>
      )}
    </ul>
  );
}

/** A card with its bar. Memory of one that is served can be kept free, also where that is the host's. */
export const CardView = memo(function CardView({ card, label, isServed }: { card: Card; label: string; isServed: boolean }) {
  const measured = card.used !== null;
  return (
    <article class="card">
      <h3>
        <bdi>{short(label, 80)}</bdi>
        <span class="figure">
          {measured ? <b>{bytes(card.used ?? 0)}</b> : <span class="planned">{bytes(card.claimed)} claimed</span>}
          {" / "}
          {bytes(card.total)}
          {isServed && mayOperate() && (
            <>
              {" "}
              <YieldAction card={card} label={label} />
            </>
          )}
        </span>
      </h3>
      <CardBar card={card} />
      <Legend card={card} />
    </article>
  );
});

/** The host's memory as a card without claims. */
export function hostCard(host: Host): Card {
  return {
    ...host,
    name: "Host memory",
    capacity: host.total,
    claimed: 0,
    free: host.total - host.used,
    foreign: 0,
    holders: [],
    limit: null,
    parts: host.parts,
  };
}

/** A card that no model is placed on; null where a figure of it is unknown. */
export function otherCard({ id, name, total, free }: OtherCard): Card | null {
  if (total === null || free === null) return null;
  const used = total - free;
  const parts: Part[] = used > 0 ? [{ kind: "unknown", bytes: used }] : [];
  return { id, name, total, used, capacity: 0, claimed: 0, free, foreign: 0, holders: [], limit: null, parts };
}
