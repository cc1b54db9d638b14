// Time line of residency: the memory of each model on each card over the last hour, and what happened.

import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { bytes, clip, clock, short, without } from "./format";
import { cards, marks, names, now, residency, TONES } from "./store";
import type { Mark, Sample } from "./types";

const HOUR = 3600;
/** The least time that a chart covers. */
const LEAST = 120;
/** Models with an area of their own on a card; the rest are one area. */
const AREAS = 12;
const FOREIGN = -1;

const dark = matchMedia("(prefers-color-scheme: dark)");
/** Colours of a canvas do not change by themselves. */
const scheme = signal(dark.matches);
dark.addEventListener("change", () => (scheme.value = dark.matches));

type Stack = { ids: number[]; data: uPlot.AlignedData };

/** Cumulated bytes by model, others first, as steps from sample to sample. */
export function stack(samples: Sample[], card: number, end: number): Stack {
  const seen = new Map<number, number>();
  for (const sample of samples) {
    for (const [id, held] of sample.cards[card]?.models ?? []) seen.set(id, Math.max(held, seen.get(id) ?? 0));
  }
  const ids = [...seen].sort((a, b) => b[1] - a[1]).slice(0, AREAS).map(([id]) => id).sort((a, b) => a - b);
  const times: number[] = [];
  const layers: (number | null)[][] = [FOREIGN, ...ids].map(() => []);
  const put = (at: number, sample: Sample) => {
    const held = new Map(sample.cards[card]?.models ?? []);
    const all = [...held.values()].reduce((total, one) => total + one, 0);
    const used = sample.cards[card]?.used;
    times.push(at);
    let level = Math.max(0, (used ?? all) - all);
    layers[0]!.push(level);
    ids.forEach((id, place) => layers[place + 1]!.push((level += held.get(id) ?? 0)));
  };
  samples.forEach((sample) => put(sample.at, sample));
  const last = samples.at(-1);
  // The last sample holds until now.
  if (last && last.at < end) put(end, last);
  return { ids, data: [times, ...layers] };
}

function colours(): { text: string; grid: string; foreign: string; tones: string[]; bad: string } {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string) => style.getPropertyValue(name).trim();
  const tones = Array.from({ length: TONES }, (_, tone) => read(`--tone-${tone}`));
  return { text: read("--soft"), grid: read("--rule"), foreign: read("--foreign"), tones, bad: read("--bad") };
}

/** The left end: an hour ago, or a young daemon's start. */
function begin(): number {
  const first = residency.peek()[0]?.at ?? 0;
  return Math.max(now.peek() - HOUR, Math.min(first, now.peek() - LEAST));
}

/** Whole minutes of the wall clock, six or fewer. */
function minutes(from: number, to: number): number[] {
  const step = [60, 120, 300, 600, 1800].find((length) => (to - from) / length <= 6) ?? HOUR;
  // The daemon's clock begins with its start.
  const past = (Date.now() / 1000 - now.peek() + from) % step;
  const first = from + (past > 0 ? step - past : 0);
  return Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, at) => first + at * step);
}

/** Loads, stops and failures as ticks at the foot of the chart. */
function ticks(bad: string, soft: string): uPlot.Plugin {
  const draw = (plot: uPlot) => {
    const { left, top, width, height } = plot.bbox;
    plot.ctx.save();
    for (const mark of marks.peek().filter((one) => one.at >= 0)) {
      const x = Math.round(plot.valToPos(mark.at, "x", true));
      if (x < left || x > left + width) continue;
      plot.ctx.fillStyle = mark.failure ? bad : soft;
      plot.ctx.fillRect(x, top + height - (mark.failure ? 14 : 8), 2, mark.failure ? 14 : 8);
    }
    plot.ctx.restore();
  };
  return { hooks: { draw } };
}

/** True while the element is near the screen: charts are costly, and most readers look at the bars. */
function useVisible(place: { current: HTMLElement | null }): boolean {
  const [visible, set] = useState(false);
  useEffect(() => {
    const watch = new IntersectionObserver((seen) => set(seen.some((one) => one.isIntersecting)), { rootMargin: "200px" });
    if (place.current) watch.observe(place.current);
    return () => watch.disconnect();
  }, []);
  return visible;
}

function Chart({ card, label, total }: { card: number; label: string; total: number }) {
  const place = useRef<HTMLDivElement>(null);
  const end = now.value;
  // Drawn every five seconds, and at once when a model comes or goes.
  const beat = Math.floor(end / 5);
  const shown = useMemo(() => stack(residency.value, card, end), [beat, residency.value.length, card]);
  const who = shown.ids.join(" ");
  const plot = useRef<uPlot | null>(null);
  const visible = useVisible(place);
  useEffect(() => {
    const parent = place.current;
    if (!parent || !visible) return;
    const { text, grid, foreign, tones, bad } = colours();
    const fill = (index: number) => (index === 0 ? foreign : tones[shown.ids[index - 1]! % TONES]!);
    const stepped = uPlot.paths.stepped!({ align: 1 });
    const series = [FOREIGN, ...shown.ids].map((_, index) => ({
      stroke: fill(index),
      width: 1,
      fill: fill(index),
      paths: stepped,
      points: { show: false },
    }));
    const bands = series.slice(1).map((_, index) => ({ series: [index + 2, index + 1] as [number, number] }));
    const axis = { stroke: text, grid: { stroke: grid, width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const made = new uPlot(
      {
        width: parent.clientWidth,
        height: 132,
        legend: { show: false },
        cursor: { show: false },
        scales: {
          x: { time: false, range: () => [begin(), now.peek()] },
          y: { range: [0, total] },
        },
        axes: [
          {
            ...axis,
            size: 24,
            splits: (_, __, from, to) => minutes(from, to),
            // Rounded, or a fraction of a second shows the minute before.
            values: (_, at) => at.map((value) => clock(value + 0.5, now.peek()).slice(0, 5)),
          },
          { ...axis, size: 62, values: (_, at) => at.map((value) => bytes(value)), splits: () => [0, total / 2, total] },
        ],
        series: [{}, ...series],
        bands,
        plugins: [ticks(bad, text)],
      },
      shown.data,
      parent,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: parent.clientWidth, height: 132 }));
    watch.observe(parent);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [who, total, visible, scheme.value]);
  useEffect(() => plot.current?.setData(shown.data), [shown]);
  return (
    <figure>
      <figcaption>
        <bdi>{short(label, 80)}</bdi>
      </figcaption>
      <div class="chart" ref={place} role="img" aria-label={`memory by model on ${short(label, 80)}, last hour`} />
      <ul class="legend">
        <li>
          <i class="key foreign" />
          others
        </li>
        {shown.ids.map((id) => (
          <li key={id}>
            <i class={`key model tone-${id % TONES}`} />
            <bdi>{short(names.get(id) ?? "removed model", 48)}</bdi>
          </li>
        ))}
      </ul>
    </figure>
  );
}

const WORDS: Record<Mark["kind"], string> = {
  load: "loads",
  ready: "is ready",
  stop: "is stopped",
  gone: "has left",
  failed: "failed",
  refused: "refused",
};

function name(mark: Mark): string | undefined {
  return mark.model === undefined ? undefined : (names.get(mark.model) ?? "removed model");
}

export function History({ labels }: { labels: Map<string, string> }) {
  const events = marks.value.filter((mark) => mark.at >= 0).slice(-40).reverse();
  return (
    <section aria-labelledby="history">
      <h2 id="history">Last hour</h2>
      <div class="charts">
        {cards.value.map((card, at) => (
          <Chart key={card.id} card={at} label={labels.get(card.id) ?? card.name} total={card.total} />
        ))}
      </div>
      <h3 id="happened">What happened</h3>
      {events.length === 0 && <p class="none">Nothing yet.</p>}
      <ol class="events" tabIndex={0} aria-labelledby="happened">
        {events.map((mark) => (
          <li key={mark.number} class={mark.failure ? "bad" : ""}>
            <time>{clock(mark.at, now.value)}</time>{" "}
            {mark.model !== undefined && (
              <b>
                <bdi>{short(name(mark) ?? "")}</bdi>
              </b>
            )}{" "}
            {WORDS[mark.kind]}
            {mark.text && `: ${clip(without(name(mark), mark.text), 240)}`}
          </li>
        ))}
      </ol>
    </section>
  );
}
