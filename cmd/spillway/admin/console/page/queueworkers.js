// The workers of the queues of a namespace, as they told the process that is asked.

import { get, path, post } from "./api.js";
import { bytes, count, duration, quoted, time, visible } from "./format.js";
import { poll, refresh } from "./live.js";
import { notice, set } from "./state.js";
import { Action, arrived, Component, html, Text } from "./ui.js";

/** Tells the workers of a PHP application to restart. */
function restart(namespace) {
  set({ confirm: {
    title: `Restart the workers of ${visible(namespace)}`, verb: "Restart",
    text: "Each restarts after its job: the application's own, and those of spillway work.",
    command: () => visible(`spillway workers restart ${quoted(namespace)}`),
    async act() {
      await post(path("namespaces", namespace, "workers", "restart"));
      notice(`the workers of ${visible(namespace)} are told to restart, each after its job`, "info");
      await refresh();
      return true;
    },
  } });
}

export class QueueWorkers extends Component {
  state = { list: null, error: "" };

  componentDidMount() {
    this.leave = poll(() => this.ask());
    this.ask();
  }

  componentDidUpdate() {
    if (this.state.list) arrived("views");
  }

  componentWillUnmount() {
    this.leave();
    this.asked?.abort();
  }

  async ask() {
    this.asked?.abort();
    const asked = (this.asked = new AbortController());
    try {
      const { workers } = await get(path("namespaces", this.props.namespace, "workers"), {}, { signal: asked.signal });
      this.setState({ list: workers, error: "" });
    } catch (err) {
      if (err.name !== "AbortError") this.setState({ error: err.message });
    }
  }

  render({ namespace, php }, { list, error }) {
    const sum = (field) => list.reduce((all, w) => all + w[field], 0);
    return html`<div class="bar"><h3>Workers of <${Text} of=${namespace} cut=${40} /></h3>
        ${list?.length > 0 && html`<span class="muted">${count(list.length)}, with ${count(sum("children"))} children, ${count(sum("busy"))} of them busy</span>`}
        ${php && html`<${Action} needs="operator" label=${"Restart the workers of " + namespace} onAct=${() => restart(namespace)}>restart<//>`}</div>
      ${error && html`<p class="rejected" role="alert">${error}</p>`}
      ${list && html`<p class="muted">Those that said what they are, as spillway work does, within 10 minutes and to this process.${php ? " PHP's own do not: what they hold is in the table of queues." : ""}</p>`}
      ${list?.length === 0 && html`<p class="muted">No worker said what it is.</p>`}
      ${list?.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Table of workers"><table class="queue-workers">
        <thead><tr><th scope="col">worker</th><th scope="col" class="n">children</th><th scope="col" class="n">busy</th><th scope="col" class="n">memory</th><th scope="col">version</th>
          <th scope="col" class="n">since</th><th scope="col" class="n">last claim</th><th scope="col">queues</th><th scope="col">token</th></tr></thead>
        <tbody>${list.map((w) => html`<${Row} key=${w.name} w=${w} />`)}</tbody></table></div>`}`;
  }
}

const Row = ({ w }) => html`<tr>
  <th scope="row"><${Text} of=${w.name} cut=${60} /></th><td class="n">${count(w.children)}</td><td class="n">${count(w.busy)}</td><td class="n">${bytes(w.memory)}</td>
  <td><${Text} of=${w.version || "–"} cut=${40} /></td><td class="n">${time(w.since_ms)}</td><td class="n">${duration(Date.now() - w.seen_ms)} ago</td>
  <td><${Text} of=${w.queues.join(", ")} cut=${60} /></td><td><${Text} of=${w.token || "–"} cut=${40} /></td>
</tr>`;
