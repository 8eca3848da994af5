// What happened to a job, where a rule keeps it.

import { get, path } from "../api.js";
import { duration, latency, time, visible } from "../format.js";
import { Component, html, Text } from "../ui.js";

const bad = new Set(["nacked", "buried", "lapsed", "expired", "dead", "lost", "rolled_back"]);
const good = new Set(["acked", "committed"]);

export class Trace extends Component {
  state = { events: null, said: "" };

  async componentDidMount() {
    const { namespace, queue, job } = this.props;
    let change;
    try {
      const answer = await get(path("namespaces", namespace, "queues", queue, "jobs", job, "trace"));
      change = { events: answer.events };
    } catch (err) {
      change = { said: err.code === "no_such_trace" ? "No trace is kept. A rule with keep_trace keeps one." : err.message };
    }
    if (!this.gone) this.setState(change);
  }

  componentWillUnmount() {
    this.gone = true;
  }

  render(_, { events, said }) {
    return html`<section class="trace" aria-label="What happened"><h2>What happened</h2>
      ${!events && html`<p class="muted" role="status">${said || "Asking the server …"}</p>`}
      ${events && html`<ol>${events.map((e, i) => html`<${Event} e=${e} since=${i > 0 ? e.at_ms - events[i - 1].at_ms : null} />`)}</ol>`}</section>`;
  }
}

function Event({ e, since }) {
  const kind = bad.has(e.event) || (e.outcome ?? "accepted") !== "accepted" ? "bad-text" : good.has(e.event) ? "ok-text" : "";
  return html`<li><p class="meta"><span>${time(e.at_ms)}</span> <b class=${kind}>${visible(e.event).replace("_", " ")}</b>
      ${e.attempt != null && html`<span>attempt ${visible(e.attempt)}</span>`} ${e.by && html`<span>by ${visible(e.by)}</span>`} ${e.reason && html`<span>${visible(e.reason)}</span>`} ${e.error && html`<span class="error"><${Text} of=${e.error} cut=${120} /></span>`} ${e.sink && html`<span>to ${visible(e.sink)}</span>`} ${e.outcome && html`<span>${visible(e.outcome)}</span>`}
      ${e.status != null && html`<span>answered <b class=${kind}>${visible(e.status)}</b></span>`} ${e.ms != null && html`<span>took ${latency(e.ms)}</span>`}
      ${since != null && html`<span>${duration(since)} later</span>`}</p></li>`;
}
