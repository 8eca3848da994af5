// Two charts of the history: rates, and depth with age. Both share the cursor.

import { duration, rate, short, visible } from "./format.js";
import { data, day, read } from "./history.js";
import { poll } from "./live.js";
import { chosen } from "./state.js";
import { colour } from "./theme.js";
import { Component, createRef, html } from "./ui.js";

const { uPlot } = globalThis; // its minified file is a script, which index.html loads first

const cursor = { sync: { key: "history" }, drag: { x: false, y: false }, points: { size: 6 } };

const perSecond = (v) => rate(v) + "/s";
const ofRates = (...lines) => lines.map(([name, colour, label]) => ({ name, colour, label, value: perSecond }));
const rates = ofRates(["accepted", "blue"], ["delivered", "green"], ["evicted", "red"], ["expired", "amber"], ["dead", "violet"], ["lost", "pink"], ["rejected", "grey"]);
const depthAndAge = [
  { name: "buffered", label: "backlog", colour: "blue", value: (v) => short(v) },
  { name: "oldest_age_ms", label: "oldest entry", colour: "amber", scale: "age", value: duration },
  { name: "limit", colour: "red", scale: "age", dash: [6, 4], value: duration },
];

/** The last 15 minutes or the last day of the buffers that the reader chose. */
export class Charts extends Component {
  state = { whole: false };

  render(_, { whole }) {
    const limit = Math.min(...chosen().map((n) => n.max_age_ms).filter((ms) => ms > 0));
    const time = whole ? "last 24 hours" : "last 15 minutes";
    const history = whole ? day : data;
    return html`<section class="charts" aria-label="History">
      <div class="bar"><h2>History</h2>
        <span class="reasons" role="group" aria-label="Time">${[false, true].map((w) => html`<button type="button" aria-pressed=${String(w === whole)} onClick=${() => this.setState({ whole: w })}>${w ? "24 h" : "15 min"}</button>`)}</span></div>
      <div class="pair">
        <${Chart} title=${`Rates, entries/s, ${time}`} lines=${whole ? rates.slice(0, -1) : rates} key=${time} history=${history} />
        <${Chart} title=${`Backlog and age of the oldest entry, ${time}`} lines=${depthAndAge} key=${time + " "} history=${history} limit=${Number.isFinite(limit) ? limit : null} />
      </div>
    </section>`;
  }
}

const jobs = [
  { name: "ready", colour: "blue", value: short },
  { name: "pending", label: "delayed or leased", colour: "grey", value: short },
  { name: "dead", colour: "red", value: short },
  { name: "oldest_ready_age_ms", label: "oldest ready", colour: "amber", scale: "age", value: duration },
];
const jobRates = ofRates(["published", "blue"], ["acked", "green"], ["died", "violet"], ["expired", "amber"], ["lost", "pink"]);
const askEvery = 60_000; // milliseconds; the history is by the minute

/** The last day of all queues of a namespace: single queues have no history. */
export class QueueCharts extends Component {
  state = { history: null, error: "" };

  componentDidMount() {
    this.leave = poll(() => Date.now() - this.askedAt >= askEvery && this.ask());
    this.ask();
  }

  componentWillUnmount() {
    this.leave();
    this.asked?.abort();
  }

  async ask() {
    this.askedAt = Date.now();
    this.asked?.abort();
    const { signal } = (this.asked = new AbortController());
    try {
      this.setState({ history: await read({ namespace: this.props.namespace }, { signal }), error: "" });
    } catch (err) {
      if (err.name !== "AbortError") this.setState({ error: err.message });
    }
  }

  render({ namespace }, { history, error }) {
    const all = `of all queues of ${visible(namespace)}, last 24 hours`;
    return html`<div class="charts">${error && html`<div class="bar"><span class="rejected" role="alert">${error}</span></div>`}
      <div class="pair"><${Chart} title=${`Jobs ${all}`} lines=${jobs} history=${history} />
        <${Chart} title=${`Jobs/s ${all}`} lines=${jobRates} history=${history} /></div></div>`;
  }
}

/**
 * A chart of a history {times (s), series}. Without a cursor it shows the last values; in all: their
 * sums, of a history that is to come, in steps.
 */
export class Chart extends Component {
  place = createRef();
  state = { hidden: {}, at: null };

  componentDidMount() {
    this.redraw = () => { this.destroy(); this.make(); };
    this.sized = new ResizeObserver(() => this.plot?.setSize(this.size()));
    this.sized.observe(this.place.current);
    addEventListener("themechange", this.redraw);
    this.make();
  }

  componentDidUpdate(before) {
    if (!this.plot) return this.make();
    if (this.props.history !== this.drawn || this.props.history?.times !== this.times || this.props.limit !== before.limit) {
      this.remember();
      this.plot.setData(this.columns());
    }
  }

  componentWillUnmount() {
    removeEventListener("themechange", this.redraw);
    this.sized.disconnect();
    this.destroy();
  }

  destroy() {
    this.plot?.destroy();
    this.plot = null;
  }

  remember() {
    this.drawn = this.props.history;
    this.times = this.drawn.times;
  }

  size() {
    return { width: Math.max(200, this.place.current.clientWidth), height: 190 };
  }

  columns() {
    const { history, lines, limit } = this.props;
    return [history.times, ...lines.map((l) => (l.name === "limit" ? history.times.map(() => limit) : history.series[l.name]))];
  }

  make() {
    const { history, lines, inAll } = this.props;
    if (!history) return;
    this.remember();
    const clock = (_, ticks) => ticks.map((t) => new Date(t * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" }));
    const axis = { stroke: colour("muted"), grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 }, font: "12px system-ui, sans-serif" };
    const aged = lines.some((l) => l.scale === "age");
    this.plot = new uPlot({
      ...this.size(), cursor: inAll ? { ...cursor, sync: undefined } : cursor, legend: { show: false },
      hooks: { setCursor: [(plot) => this.setState({ at: plot.cursor.idx ?? null })] },
      scales: { y: { range: (_, _min, max) => [0, Math.max(1, max) * 1.08] }, age: { range: (_, _min, max) => [0, Math.max(1000, max) * 1.08] } },
      axes: [{ ...axis, size: 30, values: clock }, { ...axis, size: 68, values: (_, ticks) => ticks.map(short) },
        ...(aged ? [{ ...axis, scale: "age", side: 1, size: 84, grid: { show: false }, values: (_, ticks) => ticks.map(duration), incrs: [100, 500, 1000, 5000, 10_000, 30_000, 60_000, 300_000, 600_000, 3_600_000, 21_600_000, 86_400_000] }] : [])],
      series: [{}, ...lines.map((l) => ({ stroke: colour(l.colour), scale: l.scale ?? "y", width: 1.5, dash: l.dash, points: { show: false }, show: !this.state.hidden[l.name], spanGaps: false, ...(inAll && { paths: uPlot.paths.stepped({ align: 1 }), fill: colour(l.colour) + "33" }) }))],
    }, this.columns(), this.place.current);
  }

  toggle(line, i) {
    const hidden = { ...this.state.hidden, [line.name]: !this.state.hidden[line.name] };
    this.setState({ hidden });
    this.plot?.setSeries(i + 1, { show: !hidden[line.name] });
  }

  render({ title, lines, history, limit, inAll }, { hidden, at }) {
    const value = (l) => {
      if (l.name === "limit") return l.value(limit);
      const values = history?.series[l.name] ?? [];
      if (at == null && inAll) return l.value(values.reduce((sum, v) => sum + v, 0));
      return l.value(at == null ? values.slice(-3).findLast((v) => v != null) : values[at]); // the last one may not be over
    };
    const when = at != null && history?.times[at] ? new Date(history.times[at] * 1000).toLocaleTimeString("en-GB") : inAll ? "in all" : "now";
    return html`<figure class="chart">
      <figcaption>${title} <span class="muted">(${when})</span></figcaption>
      <div class="legend">${lines.map((l, i) => html`<button type="button" aria-pressed=${String(!hidden[l.name])} onClick=${() => this.toggle(l, i)}>
        <i class=${"key " + l.colour}></i>${l.label ?? l.name} <b>${value(l)}</b></button>`)}</div>
      <div ref=${this.place} class="plot" role="img" aria-label=${`${title}. ${inAll ? "In all" : "Now"}: ${lines.map((l) => `${l.label ?? l.name} ${value(l)}`).join(", ")}`}></div>
    </figure>`;
  }
}
