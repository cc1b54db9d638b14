// Connection to the daemon: the stream of status documents, and requests with the API key.

import { connection, take } from "./store";
import type { Hint, Reason, Status } from "./types";

const KEY = "plimsoll-key";
/** An event longer than this is none of ours. */
const LONGEST = 32 << 20;

let waiting: (() => void) | undefined;

export function setKey(key: string): void {
  // For this tab only: a key on disk would outlive the visit.
  sessionStorage.setItem(KEY, key);
  connection.value = { kind: "connecting" };
  waiting?.();
}

/** A request to the daemon with the key, if there is one. */
export function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  const key = sessionStorage.getItem(KEY);
  if (key) headers.set("authorization", `Bearer ${key}`);
  return fetch(path, { ...init, headers, credentials: "omit", cache: "no-store" });
}

/** Follows the stream for as long as the page is open. */
export async function follow(): Promise<never> {
  let pause = 250;
  for (;;) {
    try {
      const answer = await ask("/api/status/stream");
      if (answer.status === 401) {
        await keyGiven();
        continue;
      }
      if (!answer.ok || !answer.body) throw new Error(await problem(answer));
      pause = 250;
      for await (const line of lines(answer.body, LONGEST)) {
        if (line.startsWith("data: ")) take(JSON.parse(line.slice(6)) as Status);
      }
      throw new Error("the daemon closed the connection");
    } catch (error) {
      connection.value = { kind: "lost", why: cause(error) };
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(pause * 2, 5000);
    }
  }
}

function cause(error: unknown): string {
  // Each browser has words of its own for it.
  if (error instanceof TypeError) return "the server does not answer";
  return error instanceof Error ? error.message : String(error);
}

async function keyGiven(): Promise<void> {
  connection.value = { kind: "key", refused: sessionStorage.getItem(KEY) !== null };
  await new Promise<void>((done) => (waiting = done));
}

/** An error answer: its message with the causes, and what helps. */
export type Refusal = { text: string; hints: Hint[] };

export async function refusal(answer: Response): Promise<Refusal> {
  const text = await answer.text();
  try {
    const { error } = JSON.parse(text) as { error: { message: string; reason?: Reason; hints?: Hint[] } };
    // The message has the first cause already.
    const causes = [error.reason?.text ?? error.message, ...(error.reason?.because ?? []).map((cause) => cause.text)];
    return { text: causes.join(": "), hints: error.hints ?? [] };
  } catch {
    return { text: `${answer.status} ${answer.statusText}`, hints: [] };
  }
}

export async function problem(answer: Response): Promise<string> {
  return (await refusal(answer)).text;
}

/** Lines of a stream; what exceeds `most` characters of one is dropped, and its length told. */
export async function* lines(body: ReadableStream<Uint8Array>, most: number): AsyncGenerator<string> {
  const reader = body.pipeThrough(new TextDecoderStream() as ReadableWritablePair<string, Uint8Array>).getReader();
  const pieces: string[] = [];
  let held = 0;
  let dropped = 0;
  const put = (text: string) => {
    const taken = text.slice(0, Math.max(0, most - held));
    if (taken) pieces.push(taken);
    held += taken.length;
    dropped += text.length - taken.length;
  };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      let from = 0;
      for (let end = value.indexOf("\n"); end >= 0; end = value.indexOf("\n", from)) {
        put(value.slice(from, end));
        const line = pieces.join("") + (dropped > 0 ? ` … (${dropped} more characters)` : "");
        pieces.length = held = dropped = 0;
        from = end + 1;
        if (line) yield line;
      }
      put(value.slice(from));
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
