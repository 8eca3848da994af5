// Acts on a queue and its jobs. What cannot be undone is counted first, then confirmed with the number.

import { exactly, path, post } from "./api.js";
import { count, quoted, visible } from "./format.js";
import { refresh } from "./live.js";
import { notice, set } from "./state.js";

const jobs = (n) => `${count(n)} ${n === 1 ? "job" : "jobs"}`;
const letters = (n) => `${count(n)} dead ${n === 1 ? "letter" : "letters"}`;

// Opens the dialog of an act on jobs of a queue. select makes the body of what the reader entered, flags
// those of the command, which is ["purge", namespace, queue].
function confirmed({ title, text, verb, fields, danger, route, select, flags, command, things, did, done }) {
  set({ confirm: {
    title, text, verb, fields, danger,
    command: (values) => visible(["spillway jobs", ...command.map(quoted), ...flags(select(values))].join(" ")),
    async count(values) {
      const dry = await post(route, { ...select(values), dry_run: true });
      return { n: dry.jobs, text: dry.jobs ? `${things(dry.jobs)} match.` : "Nothing matches." };
    },
    async act(values, confirm) {
      const got = await post(route, { ...select(values), confirm });
      notice(`${things(got.jobs)} ${did}${got.complete ? "" : "; more match now"}`, "info");
      await refresh();
      done();
      return true;
    },
  } });
}

// Opens the dialog of an act that needs no count.
function asked({ route, body = () => ({}), command, did, done, ...spec }) {
  set({ confirm: {
    ...spec,
    command: (values) => visible(command(values)),
    async act(values) {
      await post(route, body(values));
      notice(did, "info");
      await refresh();
      done();
      return true;
    },
  } });
}

/** Deletes the ready jobs of a queue, or all of them. */
export function purge(namespace, queue, done) {
  confirmed({
    title: `Purge queue ${visible(queue)} of ${visible(namespace)}`, verb: "Purge", danger: true, did: "deleted", things: jobs, done,
    text: "The jobs are deleted, with those that arrive meanwhile. Nothing brings them back.",
    fields: [{ name: "state", label: "Which jobs: ready or all", type: "text", value: "ready", counts: true, hint: "all: the delayed, leased and dead ones, too." }],
    route: path("namespaces", namespace, "queues", queue, "purge"),
    select: ({ state }) => {
      if (!["ready", "all"].includes(state.trim())) throw new Error("Which jobs: enter ready or all");
      return { all: state.trim() === "all" };
    },
    command: ["purge", namespace, queue],
    flags: ({ all }) => (all ? ["--all"] : []),
  });
}

// Which dead letters are meant: those with ids, or those that fields select. PHP's queues have no more than a number of them.
const atMost = { name: "limit", label: "At most, in jobs", type: "number", min: 0, value: "", counts: true, hint: "Empty: all." };
const selecting = [atMost,
  { name: "error", label: "Whose last error has in it", type: "text", value: "", counts: true },
  { name: "cause", label: "Of this cause, with nothing but a number", type: "text", value: "", counts: true },
  { name: "reason", label: "That died as: nacked, lapsed, buried or undecided", type: "text", value: "", counts: true },
  { name: "age", label: "Dead for, in seconds", type: "number", min: 0, value: "", counts: true }];
const fieldsOf = (ids, php) => (ids.length > 0 ? [] : php ? [atMost] : selecting);
const some = (ids, { limit, error, cause, reason, age }) => (ids.length > 0 ? { ids } : {
  ...(Number(limit) > 0 && { limit: Math.floor(Number(limit)) }), ...(error && { error }), ...(cause && { cause }), ...(reason?.trim() && { reason: reason.trim() }),
  ...(Number(age) > 0 && { age: Number(age) + "s" }),
});
const flagsOf = ({ limit, error, cause, reason, age }) => [...(limit ? ["--limit", limit] : []), ...(error ? ["--error", quoted(error)] : []),
  ...(cause ? ["--cause", quoted(cause)] : []), ...(reason ? ["--reason", quoted(reason)] : []), ...(age ? ["--age", age] : [])];

/** Makes dead letters of a queue ready again: those with ids, or the oldest that are selected. */
export function respawn(namespace, queue, done, ids = [], php = false) {
  confirmed({
    title: `Respawn dead letters of ${visible(queue)}`, verb: "Respawn", did: "made ready", things: letters, done,
    text: `Each becomes a ready job again, for one try more${ids.length > 0 ? "" : ", the oldest first"}.`,
    fields: [...fieldsOf(ids, php), { name: "ttl", label: "Time to live, in seconds", type: "number", min: 0, value: "", hint: "Empty: for ever." }],
    route: path("namespaces", namespace, "queues", queue, "dead", "respawn"),
    select: (values) => ({ ...some(ids, values), ...(Number(values.ttl) > 0 && { ttl: Number(values.ttl) + "s" }) }),
    command: ["respawn", namespace, queue, ...ids],
    flags: ({ ttl, ...of }) => [...flagsOf(of), ...(ttl ? ["--ttl", ttl] : [])],
  });
}

/** Deletes dead letters of a queue: those with ids, or the oldest that are selected. */
export function removeDead(namespace, queue, done, ids = [], php = false) {
  confirmed({
    title: `Delete dead letters of ${visible(queue)}`, verb: "Delete", danger: true, did: "deleted", things: letters, done,
    text: `They are gone then${ids.length > 0 ? "" : ", the oldest first"}, and counted as deleted.`,
    fields: fieldsOf(ids, php),
    route: path("namespaces", namespace, "queues", queue, "dead", "delete"),
    select: (values) => some(ids, values),
    command: [ids.length > 0 ? "rm" : "rm-dead", namespace, queue, ...ids],
    flags: flagsOf,
  });
}

// An act on one job.
const onJob = (verb, namespace, queue, job, spec) => asked({
  route: path("namespaces", namespace, "queues", queue, "jobs", job, verb),
  command: () => `spillway jobs ${verb === "delete" ? "rm" : verb} ${[namespace, queue, job].map(quoted).join(" ")}`,
  ...spec,
});

/** Deletes one job. */
export const remove = (namespace, queue, job, done) => onJob("delete", namespace, queue, job, {
  title: `Delete job ${visible(job)}`, verb: "Delete", danger: true, did: "1 job deleted", done,
  text: "It is gone then, also for a worker that has claimed it.",
});

/** Makes a delayed job ready. */
export const promote = (namespace, queue, job, done) => onJob("promote", namespace, queue, job, {
  title: `Promote job ${visible(job)}`, verb: "Promote", did: "1 job is ready", done,
  text: "It is ready now, and not at its time.",
});

/** Publishes a job of JSON, which may be begun with. */
export const publish = (namespace, queue, text, done) => asked({
  title: `Publish to ${visible(queue)}`, verb: "Publish", did: "1 job published", done,
  text: text ? "A job with this payload, without attributes, and with the tries and ttl of any job of the queue." : "A job with the tries and ttl of any job of the queue.",
  fields: [
    { name: "data", label: "Payload, JSON", type: "text", value: text },
    { name: "delay", label: "Delay, in seconds", type: "number", min: 0, value: "", hint: "Empty: that of the queue." },
  ],
  route: path("namespaces", namespace, "queues", queue, "jobs"),
  body: ({ data, delay }) => ({ data: [JSON.parse(data, exactly)], ...(delay !== "" && { delay_ms: Math.round(Number(delay) * 1000) }) }),
  command: ({ data, delay }) => `printf '%s\\n' ${quoted(data || "JSON")} | spillway jobs publish ${[namespace, queue].map(quoted).join(" ")}${delay === "" ? "" : ` --delay ${delay}s`}`,
});

/** Stops the claims of a queue. */
export const pause = (namespace, queue, done) => asked({
  title: `Pause ${visible(queue)}`, verb: "Pause", did: `${visible(queue)} is paused`, done,
  text: "No job of it is claimed until somebody resumes it, also after restarts. Jobs are still published, and leases go on.",
  fields: [{ name: "reason", label: "Reason, for those who come after you", type: "text", value: "" }],
  route: path("namespaces", namespace, "pause"),
  body: ({ reason }) => ({ part: queue, reason }),
  command: ({ reason }) => `spillway pause ${[namespace, queue].map(quoted).join(" ")}${reason && ` --reason ${quoted(reason)}`}`,
});

/** Lets the claims of a queue go on. */
export const resume = (namespace, queue, done) => asked({
  title: `Resume ${visible(queue)}`, verb: "Resume", did: `${visible(queue)} is claimed again`, done,
  text: "Its jobs are claimed again, also by those who wait for them.",
  route: path("namespaces", namespace, "resume"),
  body: () => ({ part: queue }),
  command: () => `spillway resume ${[namespace, queue].map(quoted).join(" ")}`,
});
