// What comes due in the next 24 hours: delayed jobs, and ticks of schedules.

import { get, path } from "./api.js";
import { Chart } from "./charts.js";
import { count, short, visible } from "./format.js";
import { poll } from "./live.js";
import { arrived, Component, html, Text } from "./ui.js";

const hour = 3_600_000;
const step = 600_000; // milliseconds
const askEvery = 60_000;
const most = 20; // queues with delayed jobs, and as many with schedules

const lines = [
  { name: "due", label: "delayed jobs", colour: "blue", value: short },
  { name: "scheduled", label: "ticks", colour: "green", value: short },
];
const counted = {
  estimate: "Later ticks of some expressions are estimated.",
  next: "Of each schedule only the next tick counts: there are too many to look at each.",
};

const sum = (list) => list.reduce((a, b) => a + b, 0);

export class Forecast extends Component {
  state = { queue: "", history: null, by: "", rows: [], total: 0, error: "" };

  componentDidMount() {
    this.leave = poll(() => Date.now() - this.askedAt >= askEvery && this.ask());
    this.ask();
  }

  componentDidUpdate() {
    if (this.state.rows.length > 0) arrived("views");
  }

  componentWillUnmount() {
    this.leave();
    this.asked?.abort();
  }

  choose(queue) {
    this.setState({ queue }, () => this.ask());
  }

  async ask() {
    this.asked?.abort();
    const asked = (this.asked = new AbortController());
    this.askedAt = Date.now();
    const { queue } = this.state;
    const of = (name, query) => get(path("namespaces", this.props.namespace, ...(name ? ["queues", name] : []), "forecast"), query, { signal: asked.signal });
    try {
      const answer = await of(queue, { step: `${step}ms`, steps: (24 * hour) / step });
      const times = Array.from({ length: (24 * hour) / step }, (_, i) => (answer.now_ms + i * step) / 1000);
      const each = (list) => times.map((_, i) => list[i] ?? 0); // a list ends with the last step that has any
      this.setState({ history: { times, series: { due: each(answer.due), scheduled: each(answer.scheduled) } }, by: answer.scheduled_by, error: "" });
      const { names, total } = await this.queues(asked.signal);
      const rows = [];
      for (const name of names) rows.push({ name, ...(await of(name, { step: `${hour}ms`, steps: 24 })) }); // the server takes one at a time
      this.setState({ rows: rows.filter((r) => sum(r.due) + sum(r.scheduled) > 0), total });
    } catch (err) {
      if (err.name !== "AbortError") this.setState({ error: err.message });
    }
  }

  // The queues with most delayed jobs, and those with most schedules.
  async queues(signal) {
    const at = path("namespaces", this.props.namespace);
    const [queues, schedules] = await Promise.all([get(at + "/queues", { sort: "delayed", limit: 100 }, { signal }), get(at + "/schedules", { limit: 1000 }, { signal })]);
    const ticking = new Map();
    for (const s of schedules.schedules) ticking.set(s.queue, (ticking.get(s.queue) ?? 0) + 1);
    const delayed = queues.queues.filter((q) => q.delayed !== 0).map((q) => q.queue);
    const scheduled = [...ticking].sort((a, b) => b[1] - a[1]).map(([name]) => name);
    return { names: [...new Set([...delayed.slice(0, most), ...scheduled.slice(0, most)])], total: new Set([...delayed, ...scheduled]).size };
  }

  render({ namespace }, { queue, history, by, rows, total, error }) {
    return html`<div class="bar"><h3>Forecast of <${Text} of=${namespace} cut=${40} /></h3>
        <label class="field"><span>Queue</span><input type="search" value=${queue} placeholder="all" spellcheck=${false} onChange=${(e) => this.choose(e.target.value.trim())} /></label>
        <button type="button" onClick=${() => this.ask()}>Look again</button>${counted[by] && html`<span class="muted">${counted[by]}</span>`}</div>
      ${error && html`<p class="rejected" role="alert">${error}</p>`}
      ${history && html`<${Chart} title=${`Due ${queue ? `in ${visible(queue)} ` : ""}in the next 24 hours, each 10 min`} lines=${lines} history=${history} inAll />`}
      ${rows.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Table of what comes due by queue"><table class="due">
        <thead><tr><th scope="col">queue</th><th scope="col" class="n">jobs, next hour</th><th scope="col" class="n">ticks, next hour</th><th scope="col" class="n">jobs, 24 h</th><th scope="col" class="n">ticks, 24 h</th><th scope="col">by the hour</th></tr></thead>
        <tbody>${rows.map((r) => html`<tr key=${r.name}><th scope="row"><button type="button" class="link" aria-pressed=${String(r.name === queue)} onClick=${() => this.choose(r.name === queue ? "" : r.name)}><${Text} of=${r.name} cut=${50} /></button></th>
          <td class="n">${short(r.due[0])}</td><td class="n">${short(r.scheduled[0])}</td><td class="n">${short(sum(r.due))}</td><td class="n">${short(sum(r.scheduled))}</td><td><${Bars} r=${r} /></td></tr>`)}</tbody></table></div>
        ${total > rows.length && html`<p class="muted">${count(rows.length)} of ${count(total)} queues; name another above.</p>`}`}`;
  }
}

const width = 8, height = 22; // of a bar

// Jobs and ticks of each hour, one on the other.
function Bars({ r }) {
  const top = Math.max(1, ...r.due.map((n, i) => n + r.scheduled[i]));
  const tall = (n) => (n > 0 ? Math.max(1, (n / top) * height) : 0);
  return html`<svg class="bars" viewBox=${`0 0 ${24 * width} ${height}`} role="img" aria-label=${`at most ${count(top)} an hour`}>${r.due.map((n, i) => html`
    <rect class="jobs" x=${i * width} y=${height - tall(n)} width=${width - 2} height=${tall(n)} />
    <rect class="ticks" x=${i * width} y=${Math.max(0, height - tall(n) - tall(r.scheduled[i]))} width=${width - 2} height=${tall(r.scheduled[i])} />`)}</svg>`;
}
