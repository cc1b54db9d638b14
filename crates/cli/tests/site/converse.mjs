// Sends recorded messages to the planner in WebAssembly: node converse.mjs MODULE MESSAGES REPLIES.
import { closeSync, openSync, readFileSync, writeSync } from "node:fs";

const [module, messages, replies] = process.argv.slice(2);
const { instance } = await WebAssembly.instantiate(readFileSync(module));
const { memory, message_room, reply, reply_text } = instance.exports;
const all = readFileSync(messages);
const out = openSync(replies, "w");
for (let at = 0; at < all.length; ) {
  const length = all.readUInt32LE(at);
  const room = message_room(length);
  new Uint8Array(memory.buffer, room, length).set(all.subarray(at + 4, at + 4 + length));
  at += 4 + length;
  const size = reply();
  const framed = Buffer.alloc(4 + size);
  framed.writeUInt32LE(size, 0);
  framed.set(new Uint8Array(memory.buffer, reply_text(), size), 4);
  writeSync(out, framed);
}
closeSync(out);
