// Fleet: its hosts with their memory, and where each model lies.

import { bytes, plural, short } from "./format";
import { fleet } from "./store";
import type { FleetHost } from "./types";

function Row({ host, own }: { host: FleetHost; own: boolean }) {
  return (
    <tr data-host={short(host.name, 64)}>
      <th scope="row">
        <bdi>{short(host.name, 64)}</bdi>
        {own && <small> this host</small>}
      </th>
      <td data-label="Address">{short(host.address, 80)}</td>
      <td data-label="Memory">
        <span class="planned">{host.free === null ? "?" : bytes(host.free)}</span> free of {bytes(host.capacity)}
        {host.drain !== null && <> · {short(host.drain, 20)}</>}
      </td>
      <td data-label="Models">
        {host.models.length === 0
          ? "none"
          : host.models.map((model, at) => (
              <span key={model.model}>
                {at > 0 && ", "}
                <bdi>{short(model.model, 80)}</bdi> <span class="planned">{bytes(model.need)}</span>
              </span>
            ))}
      </td>
    </tr>
  );
}

export function FleetHosts() {
  const seen = fleet.value;
  if (!seen) return null;
  const hosts = seen.hosts.length + seen.more;
  return (
    <section aria-labelledby="fleet">
      <h2 id="fleet">
        Fleet{" "}
        <small>
          {plural(hosts, "host")}, {plural(seen.passed_on, "request")} passed on from here
          {!seen.store_answers && <span class="bad">; the store does not answer</span>}
        </small>
      </h2>
      <table>
        <thead>
          <tr>
            <th scope="col">Host</th>
            <th scope="col">Address</th>
            <th scope="col">Memory</th>
            <th scope="col">Models</th>
          </tr>
        </thead>
        <tbody>
          {seen.hosts.map((host) => (
            <Row key={host.name} host={host} own={host.name === seen.host} />
          ))}
        </tbody>
      </table>
      {seen.more > 0 && <p>and {plural(seen.more, "more host")}</p>}
    </section>
  );
}
