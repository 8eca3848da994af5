// One queue: its jobs by state, page by page, or one of them; and what may be done with them.

import { get, path } from "./api.js";
import { QueueCharts } from "./charts.js";
import { count, duration, short, time, visible } from "./format.js";
import { JobView } from "./job.js";
import { pause, publish, purge, resume } from "./jobacts.js";
import { JobList } from "./joblist.js";
import { poll } from "./live.js";
import { isPHP, openQueues, searched } from "./queues.js";
import { forbidden, openQueue, state } from "./state.js";
import { Action, Component, html, NamespaceSelect, Text } from "./ui.js";

const statesOf = (counts) => ["ready", "delayed", "leased", "dead", ...(counts?.acked == null ? [] : ["acked"])];

export class QueuePage extends Component {
  state = { counts: null, error: "" };

  componentDidMount() {
    this.leave = poll(() => this.ask());
    this.ask();
  }

  componentWillUnmount() {
    this.leave();
    this.gone = true;
  }

  async ask() {
    const { namespace, queue } = this.props;
    let change;
    try {
      change = { counts: await get(path("namespaces", namespace, "queues", queue)), error: "" };
    } catch (err) {
      change = { error: err.message };
    }
    if (!this.gone) this.setState(change);
  }

  render({ namespace, queue, part, job }, { counts, error }) {
    const php = isPHP(state.overview.queues?.find((q) => q.namespace === namespace));
    const may = !forbidden("operator"); // a viewer has nothing to press here
    const done = () => this.ask();
    return html`<section aria-label="Queue" class="queue-page">
      <div class="bar"><button type="button" class="link" onClick=${() => openQueues(namespace)}>← queues of <${Text} of=${namespace} cut=${40} /></button>
        <${Picker} namespace=${namespace} queue=${queue} /></div>
      <div class="bar"><h2><${Text} of=${queue} cut=${120} /></h2>
        ${counts?.oldest_ready_age_ms != null && html`<span class="muted">the oldest ready job is ${duration(counts.oldest_ready_age_ms)} old</span>`}
        ${may && html`<span class="acts">${!php && html`${counts?.paused ? html`<${Action} onAct=${() => resume(namespace, queue, done)}>Resume …<//>` : html`<${Action} onAct=${() => pause(namespace, queue, done)}>Pause …<//>`}
          <${Action} onAct=${() => publish(namespace, queue, "", done)}>Publish …<//>`}
          <${Action} kind="danger" onAct=${() => purge(namespace, queue, done)}>Purge …<//></span>`}</div>
      ${counts?.paused && html`<p class="pause" role="status">No job is claimed: paused since ${time(counts.paused.since_ms)} by ${visible(counts.paused.by)}${counts.paused.reason && `: ${visible(counts.paused.reason)}`}</p>`}
      ${error && html`<p class="rejected" role="alert">${error}</p>`}
      <${States} namespace=${namespace} queue=${queue} part=${part} counts=${counts} php=${php} />
      ${counts && counts.delayed == null && html`<p class="muted">${count(counts.pending)} are delayed or leased: too many to tell them apart.</p>`}
      ${job
        ? html`<${JobView} key=${job} namespace=${namespace} queue=${queue} part=${part} job=${job} php=${php} />`
        : html`<${QueueCharts} namespace=${namespace} />
          <${JobList} key=${part} namespace=${namespace} queue=${queue} part=${part} php=${php} done=${done} />`}
    </section>`;
  }
}

/** The states of jobs, as tabs. Of PHP's queues the next job and the dead ones can be read. */
function States({ namespace, queue, part, counts, php }) {
  const show = php ? ["ready", "dead"] : statesOf(counts);
  return html`<div class="bar reasons" role="group" aria-label="States">${show.map((s) => html`
    <button type="button" aria-pressed=${String(s === part)} onClick=${() => openQueue(namespace, queue, s)}>${s} <b>${counts?.[s] == null ? "" : short(counts[s])}</b></button>`)}
    ${counts?.reserved > 0 && html`<span class="muted">${short(counts.reserved)} held by PHP</span>`}</div>`;
}

const offered = 20; // names

/** Another queue, by a part of its name. */
class Picker extends Component {
  state = { names: [], total: 0, unread: false };

  componentWillUnmount() {
    clearTimeout(this.typing);
    this.asked?.abort();
  }

  search(text) {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.ask(text), 100);
  }

  async ask(search) {
    this.asked?.abort();
    const asked = (this.asked = new AbortController());
    try {
      const { names, total, unread } = await get(path("namespaces", this.props.namespace, "queues"), { names: 1, search, limit: offered }, { signal: asked.signal });
      this.setState({ names: names ?? [], total, unread });
    } catch {} // the page says why nothing comes
  }

  render({ namespace, queue }, { names, total, unread }) {
    const choose = (name) => names.includes(name) && name !== queue && openQueue(namespace, name);
    const every = (state.overview.queues ?? []).map((q) => q.namespace);
    return html`${every.length > 1 && html`<${NamespaceSelect} value=${namespace} names=${every} onChoose=${openQueues} />`}
      <label class="field"><span>Another queue</span><input type="search" list="queue-names" placeholder="part of its name" spellcheck=${false} autocomplete="off"
        onFocus=${(e) => this.search(e.target.value)} onInput=${(e) => this.search(e.target.value)} onChange=${(e) => choose(e.target.value)} /></label>
      <datalist id="queue-names">${names.map((n) => html`<option key=${n} value=${n} />`)}</datalist>
      ${total > offered && html`<span class="muted" role="status">${count(total)} match${unread ? searched : ""}</span>`}`;
  }
}
