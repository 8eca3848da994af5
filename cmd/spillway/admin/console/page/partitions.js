// The table of one namespace's partitions. The server sorts, filters and counts; the page holds
// the rows in sight, so 100,000 partitions cost it as much as a hundred.

import { get, path } from "./api.js";
import { count, duration, listed, rate, short } from "./format.js";
import { poll } from "./live.js";
import { PartitionRow } from "./partitionrow.js";
import { chosen, setTable, state } from "./state.js";
import { Component, createRef, html, NamespaceSelect } from "./ui.js";

const rowHeight = 34; // pixels; style.css has it as --row
const ahead = 12; // rows asked for beyond those in sight
const rest = 5000; // milliseconds; who does nothing for so long is not about to act

const columns = [
  { sort: "partition", title: "partition" }, { sort: "depth", title: "depth", n: true }, { sort: "fill", title: "fill", n: true },
  { sort: "oldest_age", title: "oldest", n: true }, { sort: "in", title: "in/s", n: true }, { sort: "out", title: "out/s", n: true },
  { sort: "evicted", title: "evicted/s", n: true }, { sort: "expired", title: "expired/s", n: true }, { sort: "last_error", title: "last error" },
];

/** The namespace of the table: the chosen one, or that whose oldest entry is nearest its limit when the page opened. */
function tableNamespace() {
  if (state.namespace) return state.namespace;
  const all = chosen();
  if (all.some((n) => n.namespace === state.table.namespace)) return state.table.namespace;
  const share = (n) => (n.oldest_age_ms ?? 0) / (n.max_age_ms || Infinity);
  const worst = all.reduce((a, b) => (share(b) > share(a) ? b : a), all[0]);
  state.table.namespace = worst?.namespace ?? "";
  return state.table.namespace;
}

export class Partitions extends Component {
  viewport = createRef();
  state = { rows: [], first: 0, total: 0, sum: null, sweep: null, now: 0, top: 0, seen: 12, error: "" };

  componentDidMount() {
    this.leave = poll(() => this.ask());
    this.sized = new ResizeObserver(() => this.look());
    this.sized.observe(this.viewport.current);
    this.ask();
  }

  componentWillUnmount() {
    this.leave();
    this.sized.disconnect();
    this.asked?.abort();
  }

  // What is asked for: another question makes the rows at hand worthless.
  question() {
    const { sort, order, q, paused } = state.table;
    return { namespace: tableNamespace(), sort, order, q, paused };
  }

  async ask() {
    const { namespace, ...query } = this.question();
    if (!namespace) return;
    const same = JSON.stringify({ namespace, ...query });
    this.asked?.abort();
    const asked = (this.asked = new AbortController());
    const offset = Math.max(0, this.state.top - ahead);
    try {
      const got = await get(path("namespaces", namespace, "partitions"), { ...query, offset, limit: this.state.seen + 2 * ahead }, { signal: asked.signal });
      const hold = this.holds() && same === this.same && offset === this.state.first;
      this.setState({ rows: hold ? inPlace(this.state.rows, got.partitions) : got.partitions, first: offset, total: got.total, sum: got.sum, sweep: got.sweep, now: got.now_ms, hold, error: "" });
      this.same = same;
    } catch (err) {
      if (err.name !== "AbortError") this.setState({ error: err.message });
    }
  }

  // Rows keep their places while the pointer or the keyboard is at work among them.
  holds() {
    return performance.now() - (this.moved ?? -rest) < rest;
  }

  componentDidUpdate() {
    const now = JSON.stringify(this.question());
    if (this.wanted !== undefined && this.wanted !== now) {
      this.viewport.current.scrollTop = 0;
      this.setState({ top: 0 }, () => this.ask());
    }
    this.wanted = now;
  }

  look() {
    const box = this.viewport.current;
    const top = Math.floor(box.scrollTop / rowHeight);
    const seen = Math.ceil(box.clientHeight / rowHeight) + 1;
    if (top === this.state.top && seen === this.state.seen) return;
    const { first, rows, total } = this.state;
    const covered = top >= first && (top + seen <= first + rows.length || first + rows.length >= total);
    this.setState({ top, seen }, () => {
      clearTimeout(this.soon);
      if (!covered) this.soon = setTimeout(() => this.ask(), 40); // scrolling passes many rows
    });
  }

  sortBy(sort) {
    const { table } = state;
    const same = table.sort === sort;
    setTable({ sort, order: same ? (table.order === "desc" ? "asc" : "desc") : sort === "partition" ? "asc" : "desc" });
  }

  filter(q) {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => setTable({ q }), 250);
  }

  render(_, { rows, first, total, sum, sweep, now, hold, error }) {
    const { table } = state;
    const namespace = tableNamespace();
    const below = Math.max(0, total - first - rows.length);
    const moves = () => { this.moved = performance.now(); };
    const names = state.overview.namespaces.map((n) => n.namespace);
    return html`<section class="partitions" aria-label="Partitions">
      <div class="bar"><h2>Partitions</h2>
        ${!state.namespace && names.length > 1 && html`<${NamespaceSelect} label="of" value=${namespace} names=${names} onChoose=${(n) => setTable({ namespace: n })} />`}
        <label class="field"><span>Filter</span><input type="search" placeholder="part of a name" value=${table.q} onInput=${(e) => this.filter(e.target.value)} /></label>
        <label class="check"><input type="checkbox" checked=${table.paused} onChange=${(e) => setTable({ paused: e.target.checked })} />paused only</label>
        <span class="muted" role="status">${error || (hold ? "the order waits while you are at it" : sweepText(sweep, now))}</span>
      </div>
      <div class="scroll rows" ref=${this.viewport} tabindex="0" role="region" aria-label="Table of partitions" onScroll=${() => this.look()}
        onPointerMove=${moves} onFocusIn=${moves} onKeyDown=${moves} onPointerLeave=${() => { this.moved = -rest; }}>
      <table aria-rowcount=${total + 2}>
        <thead><tr aria-rowindex="1">${columns.map((c) => html`<th scope="col" class=${c.n ? "n" : ""} aria-sort=${table.sort === c.sort ? (table.order === "desc" ? "descending" : "ascending") : undefined}>
          <button type="button" onClick=${() => this.sortBy(c.sort)}>${c.title}<i aria-hidden="true">${table.sort === c.sort ? (table.order === "desc" ? "▼" : "▲") : ""}</i></button></th>`)}
          <th scope="col">actions</th></tr></thead>
        <tbody>
          ${first > 0 && html`<tr key="\u0000above" class="spacer" aria-hidden="true"><td colspan="10" style=${{ height: first * rowHeight + "px" }}></td></tr>`}
          ${rows.map((p, i) => html`<${PartitionRow} key=${p.partition} p=${p} namespace=${namespace} index=${first + i + 2} now=${now} />`)}
          ${below > 0 && html`<tr key="\u0000below" class="spacer" aria-hidden="true"><td colspan="10" style=${{ height: below * rowHeight + "px" }}></td></tr>`}
          ${total === 0 && html`<tr><td colspan="10" class="empty">${table.q || table.paused ? "No partition matches." : "No partition has entries: all is delivered."}</td></tr>`}
        </tbody>
        ${sum && total > 0 && html`<tfoot><tr aria-rowindex=${total + 2}><th scope="row">${count(total)} ${total === 1 ? "partition" : "partitions"}</th><td class="n">${short(sum.depth)}</td><td></td><td></td>
          <td class="n">${rate(sum.in_per_s)}</td><td class="n">${rate(sum.out_per_s)}</td><td class=${sum.evicted_per_s > 0 ? "n bad-text" : "n"}>${rate(sum.evicted_per_s)}</td>
          <td class=${sum.expired_per_s > 0 ? "n bad-text" : "n"}>${rate(sum.expired_per_s)}</td><td></td><td></td></tr></tfoot>`}
      </table></div>
    </section>`;
  }
}

/** The figures of new rows in the order of the old: nothing moves under a pointer that is about to act. */
function inPlace(old, fresh) {
  const by = new Map(fresh.map((p) => [p.partition, p]));
  return old.map((p) => by.get(p.partition) ?? { ...p, gone: true });
}

function sweepText(sweep, now) {
  if (!sweep) return "";
  const parts = [];
  if (sweep.completed_at_ms == null) parts.push("first look is under way");
  else if (now - sweep.completed_at_ms > 3000) parts.push(`as of ${duration(now - sweep.completed_at_ms)} ago`);
  if (!sweep.complete) parts.push(`${count(sweep.known)} partitions known so far`);
  return listed(parts);
}
