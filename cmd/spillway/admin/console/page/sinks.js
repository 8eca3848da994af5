// Where entries go, and how that is going: the failing ones first.

import { count, duration, latency, percent, rate, visible } from "./format.js";
import { chosen, state } from "./state.js";
import { Chip, html, Text } from "./ui.js";

const kinds = { open: "ok", opening: "warn", failing: "bad", tripped: "bad", paused: "warn" };
const order = ["tripped", "failing", "opening", "paused", "open"];

/** Does a sink fail? */
export const failing = (s) => s.state === "failing" || s.state === "tripped";

// "sink http://… fails since 3 min: 503"
function sinkText(s, now) {
  const since = s.failing_since_ms ? ` since ${duration(now - s.failing_since_ms)}` : "";
  const does = s.state === "tripped" ? "is left alone after failures" : "fails";
  return `sink ${visible(s.label)} ${does}${since}${s.last_error ? ": " + visible(s.last_error).slice(0, 200) : ""}`;
}

export function Sinks() {
  const queues = (state.overview.queues ?? []).filter((q) => !state.namespace || q.namespace === state.namespace);
  const sinks = [...chosen(), ...queues].flatMap((n) => n.sinks.map((s) => ({ ...s, namespace: n.namespace })))
    .sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state) || (b.p99_ms ?? 0) - (a.p99_ms ?? 0));
  return html`<section class="sinks" aria-label="Sinks">
    <div class="bar"><h2>Sinks</h2><span class="muted">of this process</span></div>
    ${sinks.length === 0 ? html`<p class="muted">${state.overview.role === "ingest" ? "This process only takes entries in; ask one that drains." : "No sink is open."}</p>`
      : html`<div class="scroll" tabindex="0" role="region" aria-label="Table of sinks"><table>
      <thead><tr><th scope="col">sink</th><th scope="col">namespace</th><th scope="col">state</th><th scope="col" class="n">p50</th><th scope="col" class="n">p99</th><th scope="col" class="n">writes/s</th>
        <th scope="col" class="n">retries</th><th scope="col" class="n">in flight</th><th scope="col" class="n">batch fill</th><th scope="col">last error</th></tr></thead>
      <tbody>${sinks.map((s) => html`<${Row} key=${s.namespace + " " + s.label} s=${s} />`)}</tbody></table></div>`}
  </section>`;
}

function Row({ s }) {
  const now = state.overview.now_ms;
  return html`<tr>
    <th scope="row"><${Text} of=${s.label} cut=${48} /></th>
    <td><${Text} of=${s.namespace} cut=${24} /></td>
    <td><${Chip} kind=${kinds[s.state] ?? ""}>${s.state}${failing(s) && s.failing_since_ms ? " " + duration(now - s.failing_since_ms) : ""}<//></td>
    <td class="n">${latency(s.p50_ms)}</td><td class="n">${latency(s.p99_ms)}</td><td class="n">${rate(s.writes_per_s)}</td>
    <td class="n">${count(s.retries)}</td><td class="n">${count(s.in_flight)}${s.concurrency ? ` of ${count(s.concurrency)}` : ""}</td>
    <td class="n">${percent(s.coalescer_fill)}</td>
    <td>${s.last_error ? html`<${Text} of=${s.last_error} cut=${80} /> <span class="muted">${s.last_error_at_ms ? duration(now - s.last_error_at_ms) + " ago" : ""}</span>` : html`<span class="muted">none</span>`}</td>
  </tr>`;
}

/** How many sinks of a namespace fail, and why. */
export function FailingSinks({ sinks }) {
  const bad = sinks.filter(failing);
  const why = bad.slice(0, 3).map((s) => sinkText(s, state.overview.now_ms)).join("; ");
  return html`<${Chip} kind="bad" title=${why}>${sinks.length > 1 ? `${bad.length} of ${sinks.length} sinks fail` : "sink fails"}<//>`;
}
