// What charts and sparklines show: a day by the minute, which the server has, and by the second what
// the page saw itself while it is open.

import { get } from "./api.js";
import { set, state } from "./state.js";

const counted = ["accepted", "delivered", "evicted", "expired", "dead", "lost"];
const names = [...counted, "rejected", "buffered", "oldest_age_ms", "sink_p99_ms"];
const loadEvery = 60_000; // milliseconds; the server's is by the minute
const seconds = 15 * 60; // that are kept, and shown as live

// {times (s), series: {name: […]}}: the day, and the last 15 minutes; null before the first answer
export let day = null;
export let data = null;
let live = { times: [], series: {} };
let of = null; // the namespace that they are of
let askedAt = 0; // Unix ms

/** Reads a history {times (s), series}. */
export async function read(query, options) {
  const got = await get("history", query, options);
  return { times: Array.from({ length: got.points }, (_, i) => (got.from_ms + i * got.step_ms) / 1000), series: got.series };
}

/** Brings the history up to an overview that came just now. */
export function follow(overview) {
  if (overview.namespaces.length === 0) return; // every namespace is of kind queue
  const { namespace } = state;
  if (of !== namespace) {
    live = { times: [], series: {} };
    day = before = null;
  }
  append(overview);
  if (of !== namespace || Date.now() - askedAt > loadEvery) {
    of = namespace;
    askedAt = Date.now();
    load(namespace);
  }
  data = lately(overview.now_ms / 1000 - seconds);
  set({});
}

// Nobody waits for it: with the store away the page goes on with what it sees.
async function load(namespace) {
  try {
    const got = await read({ namespace });
    if (of === namespace) day = got;
  } catch {
    askedAt -= loadEvery - 10_000; // again in 10 s
  }
}

// The minutes before the page saw anything, then what it saw.
function lately(from) {
  const minutes = day ? day.times.map((_, i) => i).filter((i) => day.times[i] > from && day.times[i] < live.times[0]) : [];
  const of = (values, seen = []) => [...minutes.map((i) => values?.[i] ?? null), ...seen];
  return { times: of(day?.times, live.times), series: Object.fromEntries(names.map((name) => [name, of(day?.series[name], live.series[name])])) };
}

// The rates of an overview are means of some seconds; the ledger gives those since the last point.
function append(overview) {
  const at = overview.now_ms / 1000;
  const chosen = state.namespace ? overview.namespaces.filter((n) => n.namespace === state.namespace) : overview.namespaces;
  const now = { ...sums(chosen), ...since(chosen, at - live.times.at(-1)) };
  const keep = (values = [], value) => [...values, value].slice(-seconds);
  live = { times: keep(live.times, at), series: Object.fromEntries(names.map((name) => [name, keep(live.series[name], now[name] ?? null)])) };
}

let before = null; // the ledger's sums with the last overview, and which namespaces they are of

function since(namespaces, seconds) {
  const of = namespaces.map((n) => n.namespace).join(" ");
  const totals = Object.fromEntries(counted.map((name) => [name, namespaces.reduce((sum, n) => sum + n.ledger[name], 0)]));
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

/** The last points of a series that the page saw, for a sparkline. */
export const tail = (name, points = 120) => live.series[name]?.slice(-points) ?? [];
