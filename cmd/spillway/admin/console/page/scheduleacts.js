// Pause, resume, trigger and backfill of a schedule.

import { path, post } from "./api.js";
import { count, quoted, visible } from "./format.js";
import { refresh } from "./live.js";
import { notice, set } from "./state.js";

const some = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;

// Opens the dialog of an act on a schedule, of = {namespace, queue, name}. did says what the answer means.
function confirmed(verb, of, { did, done, flags = () => "", body = () => ({}), ...spec }) {
  const route = path("namespaces", of.namespace, "queues", of.queue, "schedules", of.name, verb);
  set({ confirm: {
    ...spec,
    command: (values) => visible(`spillway schedules ${verb} ${[of.namespace, of.queue, of.name].map(quoted).join(" ")}${flags(values)}`),
    count: spec.count && ((values) => post(route, { ...body(values), dry_run: true }).then(spec.count)),
    async act(values, confirm) {
      const got = await post(route, { ...body(values), ...(spec.count && { confirm }) });
      notice(`${visible(of.queue)}/${visible(of.name)}: ${did(got)}`, "info");
      await refresh();
      done();
      return true;
    },
  } });
}

export const pause = (of, done) => confirmed("pause", of, {
  title: `Pause ${visible(of.name)}`, verb: "Pause", did: () => "paused", done,
  text: "It does not fire until somebody resumes it. Ticks in between count as paused, and do not fire later.",
});

export const resume = (of, done) => confirmed("resume", of, {
  title: `Resume ${visible(of.name)}`, verb: "Resume", did: () => "active", done,
  text: "It fires again, from the next tick on.",
});

export const trigger = (of, done) => confirmed("trigger", of, {
  title: `Trigger ${visible(of.name)}`, verb: "Trigger", did: (got) => `published ${some(got.accepted, "job")}`, done,
  body: () => ({ force: true }),
  flags: () => " --force",
  text: "A run more, now, beside the ticks, and also beside a run that is not done.",
});

const day = 86_400_000;
// A time as an input of local time has it.
const local = (at) => new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

function instant(text, name) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) throw new Error(`${name}: enter a date and a time`);
  return at.toISOString().replace(".000Z", "Z");
}

export const backfill = (of, done) => confirmed("backfill", of, {
  title: `Backfill ${visible(of.name)}`, verb: "Publish", did: (got) => `published ${some(got.accepted, "job")}`, done,
  text: "A run for each tick of a range, 1,000 at most. A repeat within a day publishes only what is missing.",
  fields: [
    { name: "from", label: "The first time, in your zone", type: "datetime-local", value: local(Date.now() - day), counts: true },
    { name: "to", label: "The end, not included", type: "datetime-local", value: local(Date.now()), counts: true },
  ],
  body: ({ from, to }) => ({ from: instant(from, "The first time"), to: instant(to, "The end") }),
  flags({ from, to }) {
    try {
      return ` --from ${instant(from)} --to ${instant(to)}`;
    } catch {
      return " --from … --to …";
    }
  },
  count: (dry) => ({ n: dry.jobs ?? 0, text: dry.ticks ? `${some(dry.ticks, "tick")}, ${some(dry.jobs, "job")}.` : "The range has no tick." }),
});
