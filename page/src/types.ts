// Shapes of `plimsoll.events/1` that the page reads; docs/events.md describes them.

export type Reason = { code: string; text: string; because?: Reason[] };
export type Hint = { text: string; flags?: string; saves?: number };
export type Share = { card: string; bytes: number };
export type Term = [name: string, bytes: number];

export type Part = {
  kind: "model" | "foreign" | "unknown";
  name?: string;
  process?: number;
  bytes: number;
  terms?: Term[];
};

export type Holder = { run: number; model: string; claim: number; measured: number | null };

export type Card = {
  id: string;
  name: string;
  total: number;
  capacity: number;
  claimed: number;
  free: number;
  foreign: number;
  /** Kept free for other programs by an operator. */
  yield?: { bytes: number; lacks: number; until: number | null };
  holders: Holder[];
  used: number | null;
  limit: number | null;
  parts: Part[] | null;
};

/** A card that the kernel reports and no model is placed on; null is unknown. */
export type OtherCard = { id: string; name: string; total: number | null; free: number | null };

export type Host = { id: string; total: number; used: number; parts: Part[] };

export type State = "unloaded" | "queued" | "loading" | "ready" | "draining" | "stopping" | "failed";
export type Standing = "leaving" | "idle" | "busy" | "protected" | "promised" | "stays";

export type Wait = {
  cause: "load" | "room" | "slot";
  reason: Reason;
  since: number;
  until: number | null;
  stops: string[];
};

export type Outlook = {
  standing?: Standing;
  leaves?: number;
  expires?: number;
  stops?: Reason;
  wait?: Wait;
};

export type Model = {
  id: number;
  name: string;
  state: State;
  pinned: boolean;
  pinned_until?: number;
  in_flight: number;
  queued: number;
  last_used: number | null;
  idle_since?: number;
  held_until?: number;
  claim: Share[];
  alone: boolean;
  measured: Share[];
  /** Tokens, where they cost memory. */
  depth?: { admitted: number; covered: number; full: number; waits: boolean } | null;
  /** What of its cache is in host memory, in bytes, and up to how many tokens that costs nothing. */
  spill?: { on_host: number; full_speed_tokens: number; ms_per_1000_tokens_beyond: number | null };
  last_failure: Reason | null;
  held_back: { secs: number; nanos: number } | null;
  outlook: Outlook | null;
  /** Bytes that a load takes at most, as declared or planned. */
  planned?: number;
  /** It takes pictures. */
  images?: boolean;
  /** Its flags stand in the configuration file and can be changed. */
  editable?: boolean;
  /** Tokens a second of its last streams. */
  speed?: number;
  progress?: { value?: number; current?: string } | null;
};

export type Mark = {
  number: number;
  at: number;
  kind: "load" | "ready" | "stop" | "gone" | "failed" | "refused";
  model?: number;
  /** The model's name, in a failure of an earlier run. */
  name?: string | null;
  text: string;
  failure?: { id: number; times: number; reason: Reason; hints: Hint[] };
};

export type Sample = { at: number; cards: { used: number | null; models: [id: number, bytes: number][] }[] };

/** A download in progress; or one that failed, with its cause. */
export type Download = {
  name: string;
  done?: number;
  total?: number | null;
  memory?: string | null;
  error?: string;
};

export type FleetHost = {
  name: string;
  address: string;
  version: string;
  capacity: number;
  free: number | null;
  drain: string | null;
  models: { model: string; need: number }[];
};

export type Fleet = {
  /** The name of this host. */
  host: string;
  store_answers: boolean;
  certificates: boolean;
  passed_on: number;
  hosts: FleetHost[];
  /** Hosts beyond those of the list. */
  more: number;
};

export type Moved = { model: string; bytes: number };

export type Status = {
  schema: "plimsoll.events/1";
  now: number;
  models: Model[];
  cards: Card[];
  host: Host | null;
  other_cards?: OtherCard[];
  /** What drivers have moved from models' cards to host memory. */
  moved_to_host?: Moved[];
  downloads?: Download[];
  fleet?: Fleet;
  server: {
    version: string;
    uptime: number;
    rights?: string[];
    requests: { answered: number; failed: number; abandoned: number };
  };
  marks: Mark[];
  residency?: Sample[];
};
