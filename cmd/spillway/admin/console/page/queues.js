// The namespaces of queues, ours and PHP's, their accounts, and the queues of the one that the reader chose.

import { get, path } from "./api.js";
import { count, duration, rate, short, time, visible } from "./format.js";
import { poll } from "./live.js";
import { openQueue, set, state } from "./state.js";
import { Forecast } from "./forecast.js";
import { purge } from "./jobacts.js";
import { QueueWorkers } from "./queueworkers.js";
import { Schedules } from "./schedules.js";
import { failing, FailingSinks } from "./sinks.js";
import { Action, arrived, Chip, Choice, Component, html, Text, want } from "./ui.js";

const views = [["queues", "queues"], ["workers", "workers"], ["schedules", "schedules"], ["forecast", "forecast"]];
export const isPHP = (q) => q?.kind === "php";
// PHP's queues have no schedules, nor a forecast of them.
const viewsOf = (open) => (isPHP(open) ? views.slice(0, 2) : views);
const viewOf = (open) => (viewsOf(open).some(([id]) => id === state.view) ? state.view : "queues");

/** Jobs per second that end without an ack. */
export const failed = (rates) => (rates.expired ?? 0) + (rates.lost ?? 0) + (rates.died ?? 0);

export function QueueNamespaces() {
  const shown = state.overview.queues ?? [];
  if (shown.length === 0) return null;
  const open = shown.find((q) => q.namespace === state.jobs) ?? (shown.length === 1 ? shown[0] : null);
  return html`<section aria-label="Namespaces of kind queue">
    <div class="bar"><h2>Queues</h2></div>
    <div class="scroll" tabindex="0" role="region" aria-label="Table of namespaces of kind queue">
    <table class="jobs">
      <thead><tr><th scope="col">namespace</th><th scope="col">push</th><th scope="col" class="n">published/s</th><th scope="col" class="n">acked/s</th><th scope="col" class="n">failed/s</th>
        <th scope="col" class="n">ready</th><th scope="col" class="n">delayed</th><th scope="col" class="n">leased</th><th scope="col" class="n">dead</th>
        <th scope="col" class="n">lost</th><th scope="col" class="n">oldest ready</th><th scope="col" class="n">queues</th><th scope="col" class="n">of at most</th><th scope="col" class="n">schedules</th></tr></thead>
      <tbody>${shown.map((q) => html`<${Row} key=${q.namespace} q=${q} open=${q === open} />`)}</tbody>
    </table></div>
    ${open && html`<${Account} q=${open} />`}
    <div class="bar views" id="views"><${Choice} name="view" label=${open ? html`Of <${Text} of=${open.namespace} cut=${40} />` : "Of all"} value=${viewOf(open)} options=${viewsOf(open)} onChoose=${(view) => set({ view })} /></div>
    <${Shown} open=${open} shown=${shown} />
  </section>`;
}

function Shown({ open, shown }) {
  const of = open ? [open] : shown.filter((q) => !isPHP(q));
  const view = viewOf(open);
  if (view === "schedules") return html`<${Schedules} key=${of.map((q) => q.namespace).join(" ")} of=${of} />`;
  if (!open) return html`<p class="muted">Choose a namespace in the table.</p>`;
  if (view === "workers") return html`<${QueueWorkers} key=${open.namespace} namespace=${open.namespace} php=${isPHP(open)} />`;
  return view === "forecast" ? html`<${Forecast} key=${open.namespace} namespace=${open.namespace} />` : html`<${QueueTable} key=${open.namespace} namespace=${open.namespace} />`;
}

if (state.view !== "queues" && !state.drawer) want("views");

/** Shows the schedules of a namespace, or of all, and brings them into sight. */
export function openSchedules(namespace = "") {
  want("views");
  set({ page: null, jobs: namespace, view: "schedules", schedules: { queue: "", owner: "", failing: false } });
}

/** Opens the queues of a namespace, and brings them into sight. */
export function openQueues(namespace) {
  want("queues-of");
  set({ page: null, jobs: namespace, view: "queues" });
}

function Row({ q, open }) {
  const { ledger: l, rates } = q;
  const choose = () => (state.jobs === q.namespace ? set({ jobs: "" }) : openQueues(q.namespace));
  const bad = failed(rates);
  const known = state.overview.store.ready && rates.published != null;
  const figure = (r) => rate(known ? r : null);
  return html`<tr class=${open ? "selected" : ""}>
    <th scope="row"><button type="button" class="link" aria-pressed=${String(open)} onClick=${choose}><${Text} of=${q.namespace} cut=${40} /></button>${isPHP(q) && html` <${Chip}>PHP<//>`}</th>
    <td><${Push} sinks=${q.sinks} known=${known} /></td>
    <td class="n">${figure(rates.published)}</td><td class="n">${figure(rates.acked)}</td><td class=${bad > 0 ? "n bad-text" : "n"}>${figure(bad)}</td>
    <td class="n">${short(l.ready)}</td><td class="n">${short(l.delayed)}</td><td class="n">${short(l.leased)}</td><td class=${l.dead > 0 ? "n warn-text" : "n"}>${short(l.dead)}</td>
    <td class=${l.lost > 0 ? "n bad-text" : "n"}>${short(l.lost)}</td><td class="n">${duration(q.oldest_ready_age_ms)}</td><td class="n">${short(q.queues)}</td><td class="n">${isPHP(q) ? "–" : short(q.max_jobs)}</td>
    <td class="n"><${Scheduled} namespace=${q.namespace} s=${q.schedules} /></td>
  </tr>`;
}

// How many schedules there are, and what is wrong with them.
function Scheduled({ namespace, s }) {
  if (!s) return "–";
  const bad = [[s.overdue, "overdue"], [s.gone, s.gone === 1 ? "service gone" : "services gone"]].filter(([n]) => n > 0).map(([n, what]) => `${count(n)} ${what}`);
  const all = s.active + s.stopped;
  return html`${bad.length > 0 && html`<${Chip} kind="bad">${bad.join(", ")}<//> `}${all === 0 ? "0" : html`<button type="button" class="link" aria-label=${`${count(all)} schedules of ${visible(namespace)}`} onClick=${() => openSchedules(namespace)}>${short(all)}</button>`}`;
}

function Push({ sinks, known }) {
  if (sinks.some(failing)) return html`<${FailingSinks} sinks=${sinks} />`;
  if (sinks.length && !known) return html`<${Chip} kind="warn">not known<//>`;
  return sinks.length ? html`<${Chip} kind="ok">ok<//>` : html`<span class="muted">–</span>`;
}

/** The account that always adds up; of PHP's queues what is known of it. */
function Account({ q }) {
  if (isPHP(q)) {
    return html`<p class="ledger jobs-ledger"><span class="muted">of <${Text} of=${q.namespace} cut=${40} />, by Spillway:</span> ${["published", "acked", "died", "respawned", "deleted"].map((name, i) => html`${i > 0 && " · "}<span><b>${count(q.ledger[name])}</b> ${name}</span>`)}
      ${" · "}<span class="muted">what PHP pushes and runs itself is counted nowhere: see how many are ready and how old they are</span></p>`;
  }
  const parts = ["acked", "expired", "deleted", "lost", "dead", "ready", "delayed", "leased"];
  return html`<p class="ledger jobs-ledger"><span class="muted">account of <${Text} of=${q.namespace} cut=${40} />:</span> <span><b>${count(q.ledger.published)}</b> published</span> = ${parts.map((name, i) => html`${i > 0 && " + "}<span><b>${count(q.ledger[name])}</b> ${name}</span>`)}
    ${" · "}<span class="muted">${count(q.ledger.died)} died</span> · <span class="muted">${count(q.ledger.respawned)} respawned</span></p>`;
}

const columns = [["queue", "queue"], ["ready", "ready"], ["delayed", "delayed"], ["leased", "leased"], ["dead", "dead"], ["oldest_ready_age", "oldest ready"]];
const atMost = 100; // rows of the table

/** Said of a list where there are queues whose names the server did not read. */
export const searched = ", of the 100,000 queues that are searched";

/** The queues of a namespace, in the order that the reader chose. */
class QueueTable extends Component {
  state = { sort: "ready", order: "desc", filtered: false, answer: null, error: "" };
  search = ""; // not of the state: the rows are drawn again once there is an answer

  componentDidMount() {
    this.leave = poll(() => this.ask());
    this.ask();
  }

  componentDidUpdate() {
    if (this.state.answer) arrived("queues-of");
  }

  componentWillUnmount() {
    this.leave();
    this.asked?.abort();
  }

  async ask() {
    const { sort, order } = this.state;
    const { search } = this;
    this.asked?.abort();
    const asked = (this.asked = new AbortController());
    try {
      const answer = await get(path("namespaces", this.props.namespace, "queues"), { sort, order, search, limit: atMost }, { signal: asked.signal });
      this.setState({ answer, filtered: search !== "", error: "" });
    } catch (err) {
      if (err.name !== "AbortError") this.setState({ error: err.message });
    }
  }

  sortBy(sort) {
    const same = this.state.sort === sort;
    this.setState({ sort, order: same ? (this.state.order === "desc" ? "asc" : "desc") : sort === "queue" ? "asc" : "desc" }, () => this.ask());
  }

  filter(search) {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => {
      this.search = search;
      this.ask();
    }, 100);
  }

  render({ namespace }, { sort, order, filtered, answer, error }) {
    const rows = answer?.queues ?? [];
    return html`<div class="bar" id="queues-of"><h3>Queues of <${Text} of=${namespace} cut=${40} /></h3>
        <label class="field"><span>Filter queues</span><input type="search" spellcheck=${false} onInput=${(e) => this.filter(e.target.value)} /></label>
        ${answer && html`<span class="muted">${count(rows.length)} of ${count(answer.total)}, as of ${time(answer.read_at_ms)}${answer.left_out > 0 ? `; ${count(answer.left_out)} are not counted: filter by name` : ""}${answer.unread ? searched : ""}</span>`}</div>
      ${error && html`<p class="rejected" role="alert">${error}</p>`}
      ${answer && rows.length === 0 && html`<p class="muted">${filtered ? "No queue matches." : "No queue has jobs."}</p>`}
      ${rows.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Table of queues"><table class="queues">
        <thead><tr>${columns.map(([id, name]) => html`<th scope="col" class=${id === "queue" ? "" : "n"} aria-sort=${sort === id ? (order === "desc" ? "descending" : "ascending") : undefined}>
          <button type="button" class="link" onClick=${() => this.sortBy(id)}>${name}${sort === id ? (order === "desc" ? " ↓" : " ↑") : ""}</button></th>`)}<th scope="col">actions</th></tr></thead>
        <tbody>${rows.map((r) => html`<${QueueRow} key=${r.queue} namespace=${namespace} r=${r} done=${() => this.ask()} />`)}</tbody></table></div>`}`;
  }
}

function QueueRow({ namespace, r, done }) {
  const look = (part) => openQueue(namespace, r.queue, part);
  return html`<tr>
    <th scope="row"><button type="button" class="link" onClick=${() => look("ready")}><${Text} of=${r.queue} cut=${60} /></button></th>
    <td class="n">${short(r.ready)}</td>
    ${r.delayed == null ? html`<td class="n" colspan="2" title="too many jobs to tell them apart">${short(r.pending)} in both</td>` : html`<td class="n">${short(r.delayed)}</td><td class="n">${short(r.leased)}${r.reserved > 0 && html` <span class="muted">+ ${short(r.reserved)} held by PHP</span>`}</td>`}
    <td class="n">${r.dead > 0 ? html`<button type="button" class="link" aria-label=${`${count(r.dead)} dead letters of ${visible(r.queue)}`} onClick=${() => look("dead")}>${short(r.dead)}</button>` : "0"}</td>
    <td class="n">${duration(r.oldest_ready_age_ms)}</td>
    <td class="acts"><${Action} needs="operator" kind="danger" onAct=${() => purge(namespace, r.queue, done)} label=${"Purge queue " + r.queue}>purge<//></td>
  </tr>`;
}
