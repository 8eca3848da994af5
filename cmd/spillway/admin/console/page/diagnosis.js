// Three questions, answered in words: is data being lost, whose, and why?

import { count, duration, entries, latency, listed, percent, rate, visible } from "./format.js";
import { dropped, gone as goneEntries } from "./history.js";

const losses = ["evicted", "expired", "dead", "lost"];
const final = ["evicted", "expired", "lost"]; // dead letters are kept
const words = { evicted: "evicted", expired: "expired", dead: "dead", lost: "lost" };
const nearLimit = 0.7; // of max_age: time to act before entries expire
const nearFull = 0.8; // of max_jobs
const maxNamed = 5; // namespaces the banner names

const losing = (n) => goneEntries(n.rates) > 0;
const dropping = (n) => dropped(n.rates) > 0;

/** Does a sink fail? */
export const failing = (s) => s.state === "failing" || s.state === "tripped";

/** Trouble first: what is lost, rejected or dead, not delivered. */
export function troubleFirst(namespaces) {
  const trouble = (n) => (losing(n) ? 3 : dropping(n) || n.rates.rejected > 0 ? 2 : n.paused || n.sinks.some(failing) ? 1 : 0);
  return namespaces.toSorted((a, b) => trouble(b) - trouble(a));
}

/** The partition that most of what is lost for a reason belongs to, as the server found it. */
function most(n, by, reasons) {
  const worst = reasons.reduce((a, b) => ((by[b] ?? 0) > (by[a] ?? 0) ? b : a), reasons[0]);
  return n.makers?.[worst];
}

const named = (maker) => (maker ? [{ partition: maker.partition, text: percent(maker.share) }] : []);

/**
 * Answers for an overview: {level: "fine" | "risk" | "losing", headline, findings}. A finding is
 * {namespace, level, lost, partitions, why: […]}.
 */
export function diagnose(overview, namespaces, recent = null, queues = []) {
  const findings = [];
  if (!overview.store.ready) {
    findings.push({ namespace: "", level: "losing", lost: "nothing can be stored or delivered", partitions: [], why: [`the store is not available: ${visible(overview.store.error)}`] });
  }
  if (overview.store.degraded?.includes("store_full")) {
    findings.push({ namespace: "", level: "risk", weight: 2e9, lost: "Redis has no memory left: new entries and jobs are rejected, what is stored is still delivered", partitions: [], why: (overview.store.warnings ?? []).map(visible) });
  }
  for (const n of namespaces) {
    const finding = dropping(n) ? whatIsLost(n, overview) : whatMayBeLost(n, overview);
    if (finding) findings.push(finding);
  }
  for (const q of queues) {
    const finding = jobsAtRisk(q, overview);
    if (finding) findings.push(finding);
  }
  findings.sort((a, b) => (a.level === b.level ? b.weight - a.weight : a.level === "losing" ? -1 : 1));
  const level = findings.some((f) => f.level === "losing") ? "losing" : findings.length ? "risk" : "fine";
  return { level, headline: headline(level, findings, namespaces, recent, queues), findings: findings.slice(0, maxNamed), more: Math.max(0, findings.length - maxNamed) };
}

function headline(level, findings, namespaces, recent, queues) {
  if (level === "losing") {
    const total = namespaces.reduce((sum, n) => sum + goneEntries(n.rates), 0);
    const jobs = queues.reduce((sum, q) => sum + gone(q.rates), 0);
    const parts = [];
    if (total > 0) parts.push(`${rate(total)} ${rate(total) === "1" ? "entry" : "entries"}`);
    if (jobs > 0) parts.push(`${rate(jobs)} ${rate(jobs) === "1" ? "job" : "jobs"}`);
    return parts.length ? `Yes: ${parts.join(" and ")} a second` : "Yes, new entries are rejected";
  }
  const past = recent?.entries ? ` About ${entries(recent.entries)} lost in the last 15 min, the last ${duration(recent.agoMs)} ago.` : "";
  if (level === "risk") return "Not now, but look below." + past;
  return past ? "Not now." + past : "No.";
}

function whatIsLost(n, overview) {
  const by = losses.filter((r) => n.rates[r] > 0).map((r) => `${rate(n.rates[r])}/s ${words[r]}`);
  const maker = most(n, n.rates, losses);
  const why = causes(n, overview, maker?.cause);
  if (n.rates.evicted > 0) why.push(`partitions are full: each keeps the newest ${entries(n.capacity)}`);
  if (n.rates.expired > 0) why.push(`entries wait longer than max_age, ${duration(n.max_age_ms)}`);
  if (n.rates.dead > 0) why.push("the sink rejects entries for good, and dead letters are kept" + lastly(n));
  if (n.rates.lost > 0) why.push("something other than Spillway removes entries from Redis");
  if (n.rates.dead_letters_evicted > 0) {
    by.push(`${rate(n.rates.dead_letters_evicted)}/s dropped as the oldest dead letters`);
    why.push("there are more dead letters than max_dead or max_dead_bytes keep");
  }
  return { namespace: n.namespace, level: losing(n) ? "losing" : "risk", weight: dropped(n.rates), lost: listed(by), partitions: named(maker), why };
}

/** Jobs a second that nobody can get back: dead letters are kept. */
const gone = (rates) => (rates.expired ?? 0) + (rates.lost ?? 0);

// What happens to the jobs of a namespace of kind queue that should not; null: nothing.
function jobsAtRisk(q, overview) {
  const { expired = 0, lost = 0, died = 0 } = q.rates;
  const texts = unread(q, overview);
  const why = [];
  const say = (n, word, because) => {
    if (!(n > 0)) return;
    texts.push(`${rate(n)}/s ${word}`);
    why.push(because);
  };
  say(expired, "expired", "nobody acked these jobs within their ttl");
  say(lost, "lost", "something other than Spillway removes jobs from Redis");
  say(died, "dead", "their tries are used up, or a worker gave them up; dead letters are kept");
  if (q.max_jobs > 0 && q.jobs >= nearFull * q.max_jobs) texts.push(`it holds ${count(q.jobs)} of ${count(q.max_jobs)} jobs: publishes beyond are rejected${q.largest ? `; ${count(q.largest.jobs)} are in queue ${visible(q.largest.queue)}` : ""}`);
  const bad = q.sinks.filter(failing);
  const { ready, delayed, leased } = q.ledger;
  const all = ready + delayed + leased; // a job whose last write failed is delayed
  if (bad.length && q.waiting > 0) texts.push(`${count(q.waiting)} ${q.waiting === 1 ? "job waits" : "jobs wait"} for a sink that fails`);
  else if (bad.length && q.waiting == null && all > 0) texts.push(`jobs wait for a sink that fails; the namespace has ${count(all)}${delayed > 0 ? ` (${count(delayed)} delayed)` : ""}`);
  if (!texts.length) return null;
  for (const s of bad.slice(0, 2)) why.push(sinkText(s, overview.now_ms));
  return { namespace: q.namespace, kind: "queue", level: gone(q.rates) > 0 ? "losing" : "risk", weight: gone(q.rates) || died, lost: listed(texts), partitions: [], why };
}

// That the Redis of a pool is away, while others are not.
function unread(n, overview) {
  const away = overview.now_ms - n.read_at_ms;
  if (!overview.store.ready || !(away > 15_000)) return [];
  return [n.read_at_ms ? `its Redis has not answered for ${duration(away)}, and these figures are old` : "its Redis has not answered yet"];
}

function lastly(n) {
  const latest = n.sinks.filter((s) => s.last_error && !failing(s)).sort((a, b) => (b.last_error_at_ms ?? 0) - (a.last_error_at_ms ?? 0))[0];
  return latest ? `, lastly: ${visible(latest.last_error).slice(0, 200)}` : "";
}

function whatMayBeLost(n, overview) {
  const texts = unread(n, overview);
  const old = n.oldest_age_ms != null && n.max_age_ms > 0 && n.oldest_age_ms >= nearLimit * n.max_age_ms;
  if (old) texts.push(`the oldest entry is ${duration(n.oldest_age_ms)} old and expires at ${duration(n.max_age_ms)}`);
  if (n.rates.rejected > 0) texts.push(`${rate(n.rates.rejected)}/s rejected, and the senders told: ${rejections(n)}`);
  const pausedWithBacklog = n.paused && n.buffered > 0;
  if (pausedWithBacklog) texts.push(`${entries(n.buffered)} wait while delivery is paused`);
  if (n.sinks.some(failing) && n.buffered > 0) texts.push(`${entries(n.buffered)} wait for a sink that fails`);
  if (!texts.length) return null;
  return { namespace: n.namespace, level: "risk", weight: old ? 1e9 : n.rates.rejected, lost: listed(texts), partitions: named(most(n, n.rejected ?? {}, Object.keys(n.rejected ?? {}))), why: causes(n, overview) };
}

function rejections(n) {
  const most = Object.entries(n.rejected ?? {}).filter(([, r]) => r > 0).sort((a, b) => b[1] - a[1]).slice(0, 3);
  return most.length ? listed(most.map(([code, r]) => `${code} ${rate(r)}/s`)) : "see drops";
}

/** Why entries leave more slowly than they come. */
function causes(n, overview, cause) {
  const why = [];
  if (n.paused) why.push(`delivery is ${pauseText(n.paused, overview.now_ms)}`);
  if (n.paused_partitions > 0) why.push(`${count(n.paused_partitions)} of its partitions are paused`);
  const bad = n.sinks.filter(failing);
  for (const s of bad.slice(0, 2)) why.push(sinkText(s, overview.now_ms));
  if (bad.length || n.paused) return why;
  if (cause) return [...why, visible(cause)];
  const slowest = n.sinks.filter((s) => s.p99_ms != null).sort((a, b) => b.p99_ms - a.p99_ms)[0];
  if (slowest) why.push(`slowest sink ${visible(slowest.label)}: p99 ${latency(slowest.p99_ms)}`);
  if (n.rates.evicted + n.rates.expired > 0) why.push(`${rate(n.rates.accepted)}/s come, ${rate(n.rates.delivered)}/s are delivered`);
  if (overview.workers?.size > 0 && overview.workers.busy >= overview.workers.size) why.push(`all ${overview.workers.size} workers are busy`);
  return why;
}

/** "sink http://… fails since 3 min: 503". */
export function sinkText(s, now) {
  const since = s.failing_since_ms ? ` since ${duration(now - s.failing_since_ms)}` : "";
  const does = s.state === "tripped" ? "is left alone after failures" : "fails";
  return `sink ${visible(s.label)} ${does}${since}${s.last_error ? ": " + visible(s.last_error).slice(0, 200) : ""}`;
}

/** "paused since 5 min by alice: new certificate". */
export function pauseText(pause, now) {
  return `paused since ${duration(now - pause.since_ms)}${pause.by ? " by " + visible(pause.by) : ""}${pause.reason ? ": " + visible(pause.reason).slice(0, 200) : ""}`;
}

/** What the history of 15 minutes lost: {entries, agoMs}; null when it does not know. */
export function lostLately(history) {
  if (!history) return null;
  let lost = 0;
  let last = -1;
  let known = 0; // the point before: a rate is the mean since then
  history.times.forEach((time, i) => {
    if (history.series.accepted[i] == null) return;
    const sum = final.reduce((total, name) => total + (history.series[name][i] ?? 0), 0);
    lost += sum * (i > known ? time - history.times[known] : history.step / 1000);
    known = i;
    if (sum > 0) last = i;
  });
  return last < 0 ? null : { entries: Math.round(lost), agoMs: (history.times.at(-1) - history.times[last]) * 1000 };
}
