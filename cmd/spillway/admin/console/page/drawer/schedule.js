// One schedule: what it does when, what became of its ticks, and its last runs.

import { get, path } from "../api.js";
import { count, fromNow, time, visible } from "../format.js";
import { backfill, pause, resume, trigger } from "../scheduleacts.js";
import { forbidden, openQueue, set, state } from "../state.js";
import { Action, Chip, Component, html, NamespaceSelect } from "../ui.js";

const shownTimes = 10;
const outcomes = ["fired", "missed", "overlapped", "paused", "unregistered", "superseded", "waiting"];
const bad = new Set(["missed", "unregistered"]);

export class Schedule extends Component {
  state = { found: null, times: [], error: "", hidden: "" };

  componentDidMount() {
    this.ask();
  }

  componentDidUpdate(before) {
    const { namespace, partition, id } = this.props.drawer;
    if (before.drawer.namespace !== namespace || before.drawer.partition !== partition || before.drawer.id !== id) this.ask();
  }

  componentWillUnmount() {
    this.gone = true;
  }

  which() {
    const { namespace, partition: queue, id: name } = this.props.drawer;
    return { namespace: namespace || state.overview.queues?.[0]?.namespace || "", queue, name };
  }

  async ask() {
    const { namespace, queue, name } = this.which();
    const asked = (this.asked = {});
    let change = { found: null, times: [], error: "", hidden: forbidden("operator") };
    if (namespace && queue && name) {
      const route = path("namespaces", namespace, "queues", queue, "schedules", name);
      try {
        const [times, found] = await Promise.all([get(route + "/times", { count: shownTimes }), change.hidden ? null : get(route, {}, { exact: true })]);
        change = { ...change, found, times: times.next };
      } catch (err) {
        change.error = err.message;
      }
    }
    if (!this.gone && this.asked === asked) this.setState(change);
  }

  render(_, { found, times, error, hidden }) {
    const of = this.which();
    const choose = (to) => set({ drawer: { ...state.drawer, ...to } });
    const done = () => this.ask();
    const named = of.queue && of.name;
    return html`<div class="bar"><${NamespaceSelect} value=${of.namespace} names=${(state.overview.queues ?? []).map((q) => q.namespace)} onChoose=${(n) => choose({ namespace: n, partition: "", id: "" })} />
        <label class="field"><span>Queue</span><input type="text" value=${of.queue} placeholder="name of a queue" spellcheck=${false} onChange=${(e) => choose({ partition: e.target.value.trim() })} /></label>
        <label class="field"><span>Schedule</span><input type="text" value=${of.name} placeholder="name of a schedule" spellcheck=${false} onChange=${(e) => choose({ id: e.target.value.trim() })} /></label>
        <button type="button" onClick=${done}>Look again</button></div>
      ${!named && html`<p class="muted">Name a queue and a schedule, or choose one in the table.</p>`}
      ${error && html`<p class="rejected" role="alert">${error}</p>`}
      ${named && !error && html`
        ${found && html`<p class="meta"><${Chip} kind=${{ active: "ok", paused: "warn" }[found.state]}>${visible(found.state)}<//> <span>revision <b>${count(found.rev)}</b></span>
          ${found.owner && html`<span>of the service <b>${visible(found.owner)}</b></span>`} ${found.jobs && html`<span>jobs: <b>${count(found.jobs.ok)}</b> ok, <b class=${found.jobs.failed > 0 ? "bad-text" : ""}>${count(found.jobs.failed)}</b> failed</span>`}</p>`}
        <p class="acts">${found?.state === "paused" ? html`<${Action} needs="operator" onAct=${() => resume(of, done)}>Resume …<//>` : html`<${Action} needs="operator" onAct=${() => pause(of, done)}>Pause …<//>`}
          <${Action} needs="operator" onAct=${() => trigger(of, done)}>Trigger …<//><${Action} needs="operator" onAct=${() => backfill(of, done)}>Backfill …<//></p>
        <${Times} times=${times} zone=${found?.spec.tz ?? (found ? "UTC" : "")} stopped=${found && found.state !== "active" ? found.state : ""} />
        ${found ? html`<${Account} ticks=${found.ticks} /><${Runs} of=${of} runs=${found.last} />
          <h2>Specification</h2><pre class="payload" tabindex="0">${visible(JSON.stringify(found.spec, null, 2))}</pre>` : hidden && html`<p class="muted">Its account, runs and specification: ${hidden}.</p>`}`}`;
  }
}

function Times({ times, zone, stopped }) {
  const now = state.overview.now_ms;
  return html`<h2>Ticks to come${stopped && html` <span class="muted">if it were not ${visible(stopped)}</span>`}</h2>
    ${times.length === 0 ? html`<p class="muted">None.</p>` : html`<table class="times">
      <thead><tr><th scope="col">${zone ? visible(zone) : "in its zone"}</th><th scope="col">${visible(Intl.DateTimeFormat().resolvedOptions().timeZone)}, yours</th><th scope="col"><span class="unseen">from now</span></th></tr></thead>
      <tbody>${times.map((t) => html`<tr><td>${visible(t.replace("T", " "))}</td><td>${time(Date.parse(t))}</td><td class="muted">${fromNow(Date.parse(t), now)}</td></tr>`)}</tbody></table>`}`;
}

/** Each tick has become one of these. */
function Account({ ticks }) {
  return html`<h2>Account</h2><p><b>${count(ticks.total)}</b> ${ticks.total === 1 ? "tick" : "ticks"} = ${outcomes.map((name, i) => html`${i > 0 && " + "}<span class=${bad.has(name) && ticks[name] > 0 ? "bad-text" : ""}><b>${count(ticks[name])}</b> ${name}</span>`)}</p>`;
}

function Runs({ of, runs }) {
  const now = state.overview.now_ms;
  return html`<h2>Last runs</h2>
    ${runs.length === 0 ? html`<p class="muted">None yet.</p>` : html`<ol class="entries">${runs.map((run) => html`<li class="entry">
      <p class="meta"><b>${visible(run.cause)}</b> <span title=${time(run.at_ms)}>${fromNow(Math.min(run.at_ms, now - 1), now)}</span> <span>tick ${visible(run.tick)}</span></p>
      <p class="ids">${run.ids.map((id) => html`<button type="button" class="link" aria-label=${"Job " + visible(id)} onClick=${() => openQueue(of.namespace, of.queue, "ready", id)}>${visible(id)}</button> `)}</p></li>`)}</ol>`}`;
}
