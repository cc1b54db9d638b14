// Legend of the bars: what each shade and sign of a bar stands for, as far as the bars have it.

import { cards, host } from "./store";
import { promised } from "./bar";

/** Parts of a model by the names that the daemon gives them, from dark to light. */
const TERMS: [name: string, text: string][] = [
  ["context", "driver context"],
  ["weights", "weights"],
  ["kv", "KV cache"],
  ["output", "output"],
  ["prompts", "prompts of idle slots"],
  ["compute", "compute buffer"],
  ["pool", "pool"],
  ["growth", "beyond the plan"],
];

export function Legend() {
  const bars = [...cards.value.map((card) => card.parts), host.value?.parts].flatMap((parts) => parts ?? []);
  const seen = new Set(bars.flatMap((part) => (part.terms ?? []).map(([name]) => name)));
  const terms = TERMS.filter(([name]) => seen.has(name));
  const has = (kind: string) => bars.some((part) => part.kind === kind);
  const lines = cards.value.some((card) => card.limit !== null && card.limit < card.total);
  return (
    <ul class="legend parts" aria-label="parts of a bar">
      {terms.map(([name, text]) => (
        <li key={name}>
          <i class={`key shade term-${name}`} />
          {text}
        </li>
      ))}
      {has("foreign") && (
        <li>
          <i class="key foreign" />
          other programs
        </li>
      )}
      {has("unknown") && (
        <li>
          <i class="key unknown" />
          of no listed process
        </li>
      )}
      {cards.value.some((card) => promised(card) > 0) && (
        <li>
          <i class="key ahead" />
          claimed, not yet used
        </li>
      )}
      {lines && (
        <li>
          <i class="key sign" />
          load line
        </li>
      )}
    </ul>
  );
}
