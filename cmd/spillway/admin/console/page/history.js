// The last 15 minutes by the second, for charts and sparklines. The server keeps them; between two
// askings the page adds what it sees itself.

import { get } from "./api.js";
import { set, state } from "./state.js";

const names = ["accepted", "delivered", "evicted", "expired", "dead", "lost", "rejected", "buffered", "oldest_age_ms", "sink_p99_ms"];

// {of, step (ms), times (s), series: {name: […]}}; null before the first answer
export let data = null;
let askedAt = 0; // Unix ms of the last answer

/** Reads a history {step (ms), times (s), series}. */
export async function read(query, options) {
  const got = await get("history", query, options);
  return { step: got.step_ms, times: Array.from({ length: got.points }, (_, i) => (got.from_ms + i * got.step_ms) / 1000), series: got.series };
}

async function load() {
  const { namespace } = state;
  const got = await read({ namespace });
  data = { ...got, of: namespace };
  askedAt = Date.now();
}

/** Brings the history up to an overview that came just now. pace is that of the polls, in ms. */
export async function follow(overview, pace) {
  if (overview.namespaces.length === 0) return; // every namespace is of kind queue
  const other = !data || data.of !== state.namespace;
  const behind = data && overview.now_ms / 1000 - data.times.at(-1);
  const gap = pace !== 1000 || !(behind < 2.6);
  const old = Date.now() - askedAt > 60_000;
  if (other || old || gap) {
    before = null;
    await load();
  } else if (behind >= 0.5) {
    append(overview);
  }
  set({});
}

// The rates of an overview are means of some seconds; the ledger gives those since the last point.
function append(overview) {
  const of = state.namespace ? overview.namespaces.filter((n) => n.namespace === state.namespace) : overview.namespaces;
  const now = { ...sums(of), ...since(of, overview.now_ms / 1000 - data.times.at(-1)) };
  data.times = [...data.times.slice(-899), overview.now_ms / 1000];
  for (const name of names) data.series[name] = [...data.series[name].slice(-899), now[name] ?? null];
}

let before = null; // the ledger's sums with the last overview, and which namespaces they are of

function since(namespaces, seconds) {
  const of = namespaces.map((n) => n.namespace).join(" ");
  const totals = Object.fromEntries(names.slice(0, 6).map((name) => [name, namespaces.reduce((sum, n) => sum + n.ledger[name], 0)]));
  const last = before;
  before = namespaces.every(known) ? { of, totals } : null; // an account that was not read again has not stood still
  if (last?.of !== of || !before || !(seconds > 0)) return {};
  return Object.fromEntries(Object.entries(totals).map(([name, total]) => [name, Math.max(0, total - last.totals[name]) / seconds]));
}

const max = (values) => values.reduce((a, b) => (b == null ? a : a == null ? b : Math.max(a, b)), null);

/** Are the rates of a namespace known? With its Redis away they are not, and not 0. */
export const known = (n) => state.overview?.store.ready !== false && n.rates.accepted != null;

/** The figures of several namespaces as one: sums, and the worst of ages and latencies; null is not known. */
export function sums(namespaces) {
  const total = { buffered: 0, oldest_age_ms: null, sink_p99_ms: null };
  for (const name of names.slice(0, 7)) total[name] = add(namespaces.filter((n) => name === "rejected" || known(n)).map((n) => n.rates[name]));
  total.dead_letters_evicted = add(namespaces.map((n) => n.rates.dead_letters_evicted));
  total.buffered = add(namespaces.filter((n) => n.read_at_ms !== 0).map((n) => n.buffered));
  total.oldest_age_ms = max(namespaces.map((n) => n.oldest_age_ms));
  total.sink_p99_ms = max(namespaces.flatMap((n) => n.sinks.map((s) => s.p99_ms)));
  return total;
}

const add = (values) => values.reduce((a, b) => (b == null ? a : (a ?? 0) + b), null);

/** Entries per second that were accepted and never delivered; null: not known. */
export const dropped = (rates) => (rates.evicted == null ? null : rates.evicted + rates.expired + rates.dead + rates.lost);

/** Those of them that nobody can get back: dead letters are kept, until there are too many. */
export const gone = (rates) => (rates.evicted == null ? null : dropped(rates) - rates.dead + (rates.dead_letters_evicted ?? 0));

/** The last points of a series, for a sparkline. */
export const tail = (name, points = 120) => data?.series[name]?.slice(-points) ?? [];
