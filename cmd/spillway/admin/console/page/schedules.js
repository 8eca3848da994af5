// The schedules of namespaces of kind queue, by queue and name, and the services that registered some.

import { get, path } from "./api.js";
import { count, fromNow, short, time, visible } from "./format.js";
import { poll } from "./live.js";
import { openDrawer, set, state } from "./state.js";
import { arrived, Chip, Choice, Component, html, Text } from "./ui.js";

const pageRows = 100;
const mostAsked = 20; // questions for one page, each of which looks at 1,000 schedules where the reader filters
const askEvery = 5000; // milliseconds
const mostServices = 100; // in the table

const kinds = { active: "ok", paused: "warn" };
const first = { at: 0, after: "" }; // where the list begins: a namespace, and what is before in it

const choose = (to) => set({ schedules: { ...state.schedules, ...to } });

export class Schedules extends Component {
  state = { pages: [first], rows: null, next: null, services: [], error: "" };

  componentDidMount() {
    this.leave = poll(() => Date.now() - this.askedAt >= askEvery && this.ask());
    this.ask();
  }

  componentDidUpdate() {
    if (this.state.rows) arrived("views");
    const filter = JSON.stringify(state.schedules);
    if (filter !== this.filter) this.show([first]);
  }

  componentWillUnmount() {
    this.leave();
    this.asked?.abort();
  }

  show(pages) {
    this.setState({ pages }, () => this.ask());
  }

  async ask() {
    this.asked?.abort();
    const asked = (this.asked = new AbortController());
    this.askedAt = Date.now();
    this.filter = JSON.stringify(state.schedules);
    try {
      const [found, services] = await Promise.all([this.look(this.state.pages.at(-1), asked.signal), this.services(asked.signal)]);
      this.setState({ ...found, services, error: "" });
    } catch (err) {
      if (err.name !== "AbortError") this.setState({ error: err.message });
    }
  }

  // Those from a place on, of one namespace after the other.
  async look({ at, after }, signal) {
    const names = this.props.of.map((q) => q.namespace);
    const rows = [];
    for (let n = 0; n < mostAsked && at < names.length && rows.length < pageRows; n++) {
      const answer = await get(path("namespaces", names[at], "schedules"), { ...state.schedules, after, limit: pageRows - rows.length }, { signal });
      rows.push(...answer.schedules.map((s) => ({ ...s, namespace: names[at] })));
      after = answer.next;
      if (!after) at++;
    }
    return { rows, next: at < names.length ? { at, after } : null };
  }

  async services(signal) {
    const some = this.props.of.filter((q) => !q.schedules || q.schedules.owners + q.schedules.gone > 0).slice(0, mostAsked);
    const answers = await Promise.all(some.map((q) => get(path("namespaces", q.namespace, "owners"), {}, { signal }).then((a) => a.owners.map((o) => ({ ...o, namespace: q.namespace })))));
    return answers.flat();
  }

  render({ of }, { pages, rows, next, services, error }) {
    const { queue, owner, failing } = state.schedules;
    const several = of.length > 1;
    const filtered = queue || owner || failing;
    const from = (pages.length - 1) * pageRows;
    const owners = [...new Set([...services.map((s) => s.owner), ...(owner ? [owner] : [])])].sort();
    return html`<div class="bar"><h3>Schedules of ${several ? `${count(of.length)} namespaces` : html`<${Text} of=${of[0].namespace} cut=${40} />`}</h3>
        <label class="field"><span>Queue</span><input type="search" value=${queue} placeholder="any" spellcheck=${false} onChange=${(e) => choose({ queue: e.target.value.trim() })} /></label>
        <label class="field"><span>Service</span><select value=${owner} onChange=${(e) => choose({ owner: e.target.value })}><option value="">any</option>${owners.map((o) => html`<option value=${o}>${visible(o)}</option>`)}</select></label>
        <${Choice} name="failing" label="Which" value=${failing} options=${[[false, "all"], [true, "failing"]]} onChoose=${(v) => choose({ failing: v })} /></div>
      ${error && html`<p class="rejected" role="alert">${error}</p>`}
      ${!rows && !error && html`<p class="muted">Asking the server …</p>`}
      ${rows?.length === 0 && html`<p class="muted">${next ? "None so far; there are more to look at." : failing ? "No schedule fails: none missed a tick, and no job that is tracked ended badly." : filtered ? "No schedule matches." : "There are no schedules."}</p>`}
      ${rows?.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Table of schedules"><table class="schedules">
        <thead><tr><th scope="col">schedule</th>${several && html`<th scope="col">namespace</th>`}<th scope="col">queue</th><th scope="col">state</th><th scope="col" class="n">missed</th><th scope="col" class="n">failed</th>
          <th scope="col">next tick</th><th scope="col">last run</th><th scope="col" class="n">jobs ok</th><th scope="col">service</th></tr></thead>
        <tbody>${rows.map((s) => html`<${Row} key=${s.namespace + "/" + s.queue + "/" + s.name} s=${s} several=${several} />`)}</tbody></table></div>`}
      ${(pages.length > 1 || next) && html`<nav class="bar pages" aria-label="Pages of schedules">
        <button type="button" disabled=${pages.length === 1} onClick=${() => this.show(pages.slice(0, -1))}>← before</button>
        <span class="muted">page ${count(pages.length)}${rows?.length && !filtered ? `: ${count(from + 1)} to ${count(from + rows.length)}` : ""}</span>
        <button type="button" disabled=${!next} onClick=${() => this.show([...pages, next])}>next →</button></nav>`}
      ${services.length > 0 && html`<${Services} services=${services} several=${several} />`}`;
  }
}

function Row({ s, several }) {
  const now = state.overview.now_ms;
  const next = s.next.length > 0 ? Date.parse(s.next[0]) : null;
  const last = s.last[0];
  const look = () => openDrawer("schedule", s.namespace, s.queue, s.name);
  const { missed, unregistered } = s.ticks;
  return html`<tr>
    <th scope="row"><button type="button" class="link" onClick=${look}><${Text} of=${s.name} cut=${60} /></button></th>
    ${several && html`<td><${Text} of=${s.namespace} cut=${30} /></td>`}
    <td><${Text} of=${s.queue} cut=${40} /></td>
    <td><${Chip} kind=${kinds[s.state]}>${visible(s.state)}<//></td>
    <td class=${missed + unregistered > 0 ? "n warn-text" : "n"} title=${unregistered > 0 ? `${count(unregistered)} of them because its service was gone` : undefined}>${short(missed + unregistered)}</td>
    <td class=${s.jobs?.failed > 0 ? "n bad-text" : "n"}>${s.jobs ? short(s.jobs.failed) : html`<span class="muted">–</span>`}</td>
    <td title=${s.next[0]}>${next == null ? "–" : html`<span class=${now - next > 10_000 ? "bad-text" : ""}>${fromNow(next, now)}</span>`}</td>
    <td title=${last && time(last.at_ms)}>${last ? html`${visible(last.cause)}, ${fromNow(Math.min(last.at_ms, now - 1), now)}` : html`<span class="muted">none</span>`}</td>
    <td class="n">${s.jobs ? short(s.jobs.ok) : html`<span class="muted">–</span>`}</td>
    <td>${s.owner ? html`<${Text} of=${s.owner} cut=${30} />` : html`<span class="muted">–</span>`}</td>
  </tr>`;
}

const order = ["gone", "registered", "ended"];
const lives = { registered: "ok", gone: "bad" };

/** The services: those that are gone first. */
function Services({ services, several }) {
  const now = state.overview.now_ms;
  const sorted = services.toSorted((a, b) => order.indexOf(a.state) - order.indexOf(b.state));
  return html`<div class="bar"><h3>Services</h3><span class="muted">that registered schedules, which fire while they send heartbeats${sorted.length > mostServices ? `; ${count(mostServices)} of ${count(sorted.length)}` : ""}</span></div>
    <div class="scroll" tabindex="0" role="region" aria-label="Table of services"><table class="services">
      <thead><tr><th scope="col">service</th>${several && html`<th scope="col">namespace</th>`}<th scope="col">state</th><th scope="col">heartbeat</th><th scope="col" class="n">version</th><th scope="col" class="n">schedules</th></tr></thead>
      <tbody>${sorted.slice(0, mostServices).map((o) => html`<tr key=${o.namespace + "/" + o.owner}>
        <th scope="row"><${Text} of=${o.owner} cut=${40} /></th>${several && html`<td><${Text} of=${o.namespace} cut=${30} /></td>`}
        <td><${Chip} kind=${lives[o.state]}>${visible(o.state)}<//></td>
        <td>${!o.until_ms ? html`<span class="muted">–</span>` : o.state === "gone" ? `was due ${fromNow(o.until_ms, now)}` : `due ${fromNow(o.until_ms, now)}`}</td><td class="n">${count(o.version)}</td>
        <td class="n"><button type="button" class="link" aria-label=${`${count(o.owns)} schedules of ${visible(o.owner)}`} onClick=${() => choose({ owner: o.owner })}>${short(o.owns)}</button></td></tr>`)}</tbody></table></div>`;
}
