// Text of sizes, times and foreign strings.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

/** A size with three digits, in the unit that gives 1 to 1023. */
export function bytes(count: number): string {
  let unit = 0;
  let value = count;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit < 2 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}

/** A duration in its two largest units. */
export function seconds(count: number): string {
  const whole = Math.max(0, Math.round(count));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${pad(whole % 60)} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

function pad(value: number): string {
  return String(value).padStart(2, "0");
}

/** Time of day of a moment of the daemon, whose clock shows `now`. */
export function clock(at: number, now: number): string {
  const time = new Date(Date.now() - (now - at) * 1000);
  return `${pad(time.getHours())}:${pad(time.getMinutes())}:${pad(time.getSeconds())}`;
}

/** A text that others wrote, cut to a length that a page can show. */
export function clip(text: string, most = 400): string {
  return text.length <= most ? text : `${text.slice(0, most)} … (${text.length - most} more characters)`;
}

/** A name, cut where it would fill the page. */
export function short(name: string, most = 80): string {
  return name.length <= most ? name : `${name.slice(0, most)}…`;
}

/** A text about something, without the name of it at its beginning. */
export function without(name: string | undefined, text: string): string {
  const rest = name && text.startsWith(name) ? text.slice(name.length) : "";
  return /^[: ]/.test(rest) ? rest.replace(/^:? */, "") : text;
}

export function sum(shares: { bytes: number }[]): number {
  return shares.reduce((total, share) => total + share.bytes, 0);
}

export function plural(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

export function ordinal(count: number): string {
  const teen = count % 100 >= 11 && count % 100 <= 13;
  return `${count}${teen ? "th" : (["th", "st", "nd", "rd"][count % 10] ?? "th")}`;
}
