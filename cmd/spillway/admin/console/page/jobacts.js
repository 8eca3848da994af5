// Respawn, delete and purge of jobs: counted first, then confirmed with the number.

import { path, post } from "./api.js";
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

/** Deletes the ready jobs of a queue, or all of them. */
export function purge(namespace, queue, done) {
  confirmed({
    title: `Purge queue ${visible(queue)} of ${visible(namespace)}`, verb: "Purge", danger: true, did: "deleted", things: jobs, done,
    text: "The jobs are deleted, with those that arrive meanwhile. Nothing brings them back.",
    fields: [{ name: "state", label: "Which jobs: ready or all", type: "text", value: "ready", counts: true, hint: "all: the delayed, leased and dead ones, too." }],
    route: path("namespaces", namespace, "queues", queue, "purge"),
    select: (values) => ({ state: values.state.trim() }),
    command: ["purge", namespace, queue],
    flags: ({ state }) => (state === "all" ? ["--all"] : []),
  });
}

/** Makes dead letters of a queue ready again. */
export function respawn(namespace, queue, done) {
  confirmed({
    title: `Respawn dead letters of ${visible(queue)}`, verb: "Respawn", did: "made ready", things: letters, done,
    text: "Each becomes a ready job again, for one try more, the oldest first.",
    fields: [
      { name: "limit", label: "At most, in jobs", type: "number", min: 0, value: "", counts: true, hint: "Empty: all." },
      { name: "ttl", label: "Time to live, in seconds", type: "number", min: 0, value: "", hint: "Empty: for ever." },
    ],
    route: path("namespaces", namespace, "queues", queue, "dead", "respawn"),
    select: (values) => ({ ...(Number(values.limit) > 0 && { limit: Math.floor(Number(values.limit)) }), ...(Number(values.ttl) > 0 && { ttl_ms: Math.round(Number(values.ttl) * 1000) }) }),
    command: ["respawn", namespace, queue],
    flags: ({ limit, ttl_ms: ttl }) => [...(limit ? ["--limit", limit] : []), ...(ttl ? ["--ttl", ttl + "ms"] : [])],
  });
}

/** Deletes dead letters of a queue. */
export function removeDead(namespace, queue, done) {
  confirmed({
    title: `Delete dead letters of ${visible(queue)}`, verb: "Delete", danger: true, did: "deleted", things: letters, done,
    text: "They are gone then, the oldest first, and counted as deleted.",
    fields: [{ name: "limit", label: "At most, in jobs", type: "number", min: 0, value: "", counts: true, hint: "Empty: all." }],
    route: path("namespaces", namespace, "queues", queue, "dead", "delete"),
    select: (values) => (Number(values.limit) > 0 ? { limit: Math.floor(Number(values.limit)) } : {}),
    command: ["delete", namespace, queue],
    flags: ({ limit }) => ["--dead", ...(limit ? ["--limit", limit] : [])],
  });
}

/** Deletes one job. */
export function remove(namespace, queue, job, done) {
  set({ confirm: {
    title: `Delete job ${visible(job)}`,
    text: "It is gone then, also for a worker that has claimed it.",
    danger: true,
    verb: "Delete",
    command: () => visible(`spillway jobs delete ${[namespace, queue, job].map(quoted).join(" ")}`),
    async act() {
      await post(path("namespaces", namespace, "queues", queue, "jobs", job, "delete"));
      notice("1 job deleted", "info");
      await refresh();
      done();
      return true;
    },
  } });
}
