// Asks the planner, a module of WebAssembly, by messages of bytes. Its answers are those of `plimsoll plan`.

/** The planner from its base64 text in this page. */
async function planner(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const { instance } = await WebAssembly.instantiate(bytes);
  const { memory, message_room, reply, reply_text } = instance.exports;
  /** The reply as text. `rest` are the bytes that follow the message. */
  const text_of = (message, rest = new Uint8Array()) => {
    const line = new TextEncoder().encode(`${JSON.stringify(message)}\n`);
    const room = message_room(line.length + rest.length);
    // The module's memory may move with each call, so it is looked at anew.
    const place = new Uint8Array(memory.buffer, room, line.length + rest.length);
    place.set(line);
    place.set(rest, line.length);
    const length = reply();
    return new TextDecoder().decode(new Uint8Array(memory.buffer, reply_text(), length));
  };
  const ask = (message, rest) => {
    const answer = JSON.parse(text_of(message, rest));
    if (typeof answer.error === "string") throw new Error(answer.error);
    return answer;
  };
  return { ask, text_of };
}
