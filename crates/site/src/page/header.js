// Reads the header of a model file: the parts that the planner asks for, and no weights.

/** A file that the user gave. */
function local(file) {
  const part = async (from, to) => new Uint8Array(await file.slice(from, to).arrayBuffer());
  return { name: file.name, length: async () => file.size, part, traffic: { bytes: 0, requests: 0 } };
}

/** A file on a server that the user named, by requests of byte ranges. */
function remote(address, size) {
  let at = address;
  let total = size ?? null;
  let tag = null;
  let kept = null;
  const traffic = { bytes: 0, requests: 0 };
  const part = async (from, to) => {
    if (kept && kept.from === from && kept.to >= to) return kept.bytes.subarray(0, to - from);
    const answer = await got(at, { Range: `bytes=${from}-${to - 1}` });
    if (answer.status !== 206) throw new Error(`${address}: the server does not send parts of a file\nhint: download the file and drop it here`);
    // Straight to where the redirects led, which saves a round trip.
    at = answer.url || at;
    const whole = /\/(\d+)$/.exec(answer.headers.get("Content-Range") ?? "");
    if (whole) total ??= Number(whole[1]);
    const changed = answer.headers.get("ETag");
    if (tag && changed && tag !== changed) throw new Error(`${address}: the file changed on the server while it was read\nhint: try again`);
    tag ??= changed;
    const bytes = new Uint8Array(await answer.arrayBuffer());
    traffic.requests += 1;
    traffic.bytes += bytes.length;
    return bytes;
  };
  const length = async () => {
    if (total === null) kept = { from: 0, to: 65536, bytes: await part(0, 65536) };
    if (total === null) throw new Error(`${address}: the server does not state the file's length to a page (Content-Range)\nhint: download the file and drop it here`);
    return total;
  };
  return { name: decodeURIComponent(address.split("?")[0].split("/").pop()), length, part, traffic };
}

/** An answer of a server; the errors say what can be done. */
async function got(address, headers = {}) {
  let answer;
  try {
    answer = await fetch(address, { headers, referrerPolicy: "no-referrer", credentials: "omit" });
  } catch {
    throw new Error(`${address}: the server cannot be reached, or does not let pages read from it\nhint: check the name and the network, or download the file and drop it here`);
  }
  if (answer.ok) return answer;
  const hints = {
    401: "the repository does not exist, or asks for a token, which this page never does\nhint: check the name, or download the file and drop it here",
    404: "the server does not have it\nhint: check the name",
    429: "the server received too many requests\nhint: try again in some minutes",
  };
  throw new Error(`${address}: ${hints[answer.status === 403 ? 401 : answer.status] ?? `the server answered with status ${answer.status}`}`);
}

/** Opens a file in the planner. `like` is one that probably has the same vocabulary. */
async function open(planner, source, { like, engine } = {}) {
  const length = await source.length();
  const opened = planner.ask({ open: { length, like, engine } });
  try {
    let state = opened;
    while (state.wants) {
      const [from, to] = state.wants;
      state = planner.ask({ take: { file: opened.file, start: from } }, await source.part(from, to));
    }
    if (like === undefined || state.sure) return opened.file;
  } catch (error) {
    planner.ask({ close: { files: [opened.file] } });
    if (like === undefined) throw error;
    return open(planner, source, { engine });
  }
  // The vocabulary was another one after all: every byte is read then.
  planner.ask({ close: { files: [opened.file] } });
  return open(planner, source, { engine });
}
