// Pause and resume of a namespace or of one partition.

import { path, post } from "./api.js";
import { refresh } from "./live.js";
import { notice, set } from "./state.js";
import { duration, visible } from "./format.js";

/** "paused since 5 min by alice: new certificate". */
export function pauseText(pause, now) {
  return `paused since ${duration(now - pause.since_ms)}${pause.by ? " by " + visible(pause.by) : ""}${pause.reason ? ": " + visible(pause.reason).slice(0, 200) : ""}`;
}

const what = (namespace, partition) => visible(partition ? `${namespace}/${partition}` : namespace);

async function write(verb, namespace, partition, body, done) {
  try {
    await post(path("namespaces", namespace, verb), { ...body, ...(partition && { part: partition }) });
    notice(done, "info");
    await refresh();
    return true;
  } catch (err) {
    notice(`${what(namespace, partition)}: ${err.message}`);
    return false;
  }
}

/** Asks for a reason, then pauses. */
export function pause(namespace, partition = "") {
  set({ confirm: {
    title: `Pause delivery of ${what(namespace, partition)}`,
    text: "Nothing of it goes to its sink until somebody resumes it, also after restarts. Entries still come in; a full partition evicts its oldest ones, and old entries expire.",
    fields: [{ name: "reason", label: "Reason, for those who come after you", type: "text", value: "" }],
    verb: "Pause",
    act: ({ reason }) => write("pause", namespace, partition, { reason }, `${what(namespace, partition)} is paused`),
  } });
}

export const resume = (namespace, partition = "") => write("resume", namespace, partition, {}, `${what(namespace, partition)} is delivered again`);
