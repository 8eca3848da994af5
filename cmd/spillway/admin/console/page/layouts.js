// The shards of a namespace while they change: both layouts, and what is left in the older one.

import { get, path } from "./api.js";
import { count, duration, entries, quoted, visible } from "./format.js";
import { poll } from "./live.js";
import { Component, html, Text } from "./ui.js";

/** Asks with each poll, as long as it is shown. */
export class Layouts extends Component {
  componentDidMount() {
    this.leave = poll(() => this.ask());
    this.ask();
  }

  componentWillUnmount() {
    this.leave();
  }

  async ask() {
    try {
      const { layouts } = await get(path("namespaces", this.props.n.namespace, "layouts"));
      this.setState({ list: layouts.filter((l) => l.state === "current" || l.state === "older"), error: "" });
    } catch (err) {
      this.setState({ error: err.message });
    }
  }

  render({ n }, { list, error }) {
    const name = visible(quoted(n.namespace));
    return html`<div class="layouts"><h3>The shards of <${Text} of=${n.namespace} cut=${40} /> change</h3>
      ${error && html`<p class="rejected" role="alert">${error}</p>`}
      ${list?.map((l) => html`<${Row} key=${l.n} l=${l} n=${n} />`)}
      <p><small>The same from the command line</small></p>
      <pre class="payload" tabindex="0">spillway layouts ls ${name}${"\n"}spillway reshard ${name} ${n.shards.current}</pre></div>`;
  }
}

function Row({ l, n }) {
  if (l.state === "current") return html`<p><b>${count(l.shards)} shards</b> take new entries <span class="muted">(layout ${l.n}${l.pool && `, pool ${l.pool}`}${l.by && html`, by <${Text} of=${l.by} cut=${40} />`})</span></p>`;
  const until = Math.max(0, n.max_age_ms - l.oldest_age_ms);
  return html`<p><b>${count(l.shards)} older shards</b>: ${entries(l.entries)} of ${count(l.partitions)} ${l.partitions === 1 ? "partition" : "partitions"} left${" "}
      <span class="muted">(layout ${l.n}${l.pool && `, pool ${l.pool}`})</span>; ${count(l.fenced)} of ${count(l.shards)} fenced, ${count(l.empty)} empty${l.entries > 0 && html`; the oldest waits for ${duration(l.oldest_age_ms)}, empty in ${duration(until)} at the latest`}</p>
    <meter min="0" max=${Math.max(n.buffered, l.entries, 1)} value=${l.entries} aria-label="Entries left in older shards, of all that wait"></meter>`;
}
