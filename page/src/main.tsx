// Status page of `plimsoll serve`: cards, models, queue, failures, history and logs, live by one event stream.

import { render } from "preact";
import { ActDialog } from "./act";
import { CardView, hostCard, otherCard } from "./bar";
import { Chat } from "./chat";
import { Downloads } from "./downloads";
import { FlagsDialog } from "./flags";
import { FleetHosts } from "./fleet";
import { clip, clock, plural, seconds } from "./format";
import { Legend } from "./legend";
import { Logs } from "./logs";
import { Models } from "./models";
import { cards, connection, heard, host, mayOperate, now, otherCards, server, tick } from "./store";
import { WhatIf } from "./plan";
import { follow, setKey } from "./stream";
import { History } from "./timeline";
import { Failures, Waiting } from "./waiting";
import "uplot/dist/uPlot.min.css";
import "./page.css";

/** Cards by a name of their own: equal cards are told apart by number. */
function labels(): Map<string, string> {
  const all = cards.value;
  const namesakes = (name: string) => all.filter((card) => card.name === name).length;
  return new Map(all.map((card, at) => [card.id, namesakes(card.name) > 1 ? `${at} · ${card.name}` : card.name]));
}

function Head() {
  const about = server.value;
  const state = connection.value;
  return (
    <header>
      <h1>
        <svg viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
          <circle cx="16" cy="16" r="9" fill="none" stroke="currentColor" stroke-width="3" />
          <path d="M2 16h28" stroke="currentColor" stroke-width="3" />
        </svg>
        Plimsoll
      </h1>
      <p role="status" class={state.kind === "lost" ? "bad" : ""} data-connection={state.kind}>
        {state.kind === "lost" && `not connected: ${clip(state.why, 300)}${about ? `; this is how it was at ${clock(heard, now.peek())}` : ""}`}
        {state.kind === "connecting" && "connecting"}
        {state.kind === "key" && "needs an API key"}
        {state.kind === "live" && about && `${about.version}, up ${seconds(about.uptime)}`}
      </p>
      {about && state.kind !== "key" && (
        <p class="totals">
          {plural(about.requests.answered, "request")} answered, {about.requests.failed} failed,{" "}
          {about.requests.abandoned} abandoned
        </p>
      )}
    </header>
  );
}

function KeyForm({ refused }: { refused: boolean }) {
  return (
    <form
      class="choices"
      onSubmit={(event) => {
        event.preventDefault();
        setKey(String(new FormData(event.currentTarget).get("key") ?? "").trim());
      }}
    >
      <label>
        API key <input name="key" type="password" required autocomplete="off" aria-invalid={refused} />
      </label>{" "}
      <button type="submit" class="primary">
        Show
      </button>
      {refused && (
        <p class="bad" role="alert">
          The key was refused.
        </p>
      )}
    </form>
  );
}

function OtherCards() {
  const shown = otherCards.value.map((card) => ({ card, known: otherCard(card) }));
  return (
    <>
      {shown.map(({ card, known }) =>
        known ? (
          <CardView key={card.id} card={known} label={card.name} isServed={false} />
        ) : (
          <p key={card.id}>
            Memory of <bdi>{clip(card.name, 80)}</bdi> is unknown
          </p>
        ),
      )}
    </>
  );
}

function Memory({ names }: { names: Map<string, string> }) {
  return (
    <section aria-labelledby="memory">
      <h2 id="memory">
        Memory <small>measured by the driver; <span class="planned">claimed or planned</span></small>
      </h2>
      <Legend />
      <div class="cards">
        {cards.value.map((card) => (
          <CardView key={card.id} card={card} label={names.get(card.id) ?? card.name} isServed={true} />
        ))}
        <OtherCards />
        {host.value && <CardView key="host" card={hostCard(host.value)} label="Host memory" isServed={false} />}
      </div>
    </section>
  );
}

function Page() {
  const state = connection.value;
  const shown = server.value !== null && state.kind !== "key";
  const names = labels();
  return (
    <>
      <Head />
      <main data-stale={state.kind === "lost"}>
        {state.kind === "key" && <KeyForm refused={state.refused} />}
        {shown && (
          <>
            <Memory names={names} />
            <Waiting />
            <Chat />
            <Downloads />
            <Models labels={names} />
            <FleetHosts />
            <Failures />
            <History labels={names} />
            <WhatIf />
            {mayOperate() && <Logs />}
          </>
        )}
      </main>
      <ActDialog />
      <FlagsDialog />
    </>
  );
}

render(<Page />, document.getElementById("page")!);
setInterval(tick, 1000);
void follow();
