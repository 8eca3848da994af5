// Purge: entries of a namespace or partition are removed without delivery, and counted as purged.

import { path, post } from "./api.js";
import { count, entries, visible } from "./format.js";
import { refresh } from "./live.js";
import { notice, set } from "./state.js";

/** Counts what would go, asks for the number, then purges that many at most. */
export function purge(namespace, partition = "") {
  const route = path("namespaces", namespace, "purge");
  const what = visible(partition ? `partition ${partition} of ${namespace}` : `namespace ${namespace}`);
  const select = (values) => ({
    ...(partition && { partition }),
    ...(Number(values.older) > 0 && { older_than: `${Number(values.older)}s` }),
    ...(Number(values.limit) > 0 && { limit: Math.floor(Number(values.limit)) }),
  });
  set({ confirm: {
    title: `Purge ${what}`,
    text: "The entries are removed without delivery. Nothing brings them back.",
    fields: [
      { name: "older", label: "Older than, in seconds", type: "number", min: 0, value: "", counts: true, hint: "Empty: of any age." },
      { name: "limit", label: "At most, in entries", type: "number", min: 0, value: "", counts: true, hint: "Empty: all." },
    ],
    danger: true,
    verb: "Purge",
    async count(values) {
      const dry = await post(route, { ...select(values), dry_run: true });
      return { n: dry.entries, text: dryText(dry) };
    },
    async act(values, confirm) {
      const done = await post(route, { ...select(values), confirm });
      notice(`${entries(done.entries)} purged of ${what}${done.complete ? "" : "; more match now"}${leased(done)}`, "info");
      await refresh();
      return true;
    },
  } });
}

const leased = (answer) => (answer.leased > 0 ? `; ${count(answer.leased)} ${answer.leased === 1 ? "partition is" : "partitions are"} being delivered and left alone` : "");

function dryText(dry) {
  if (dry.entries === 0) return `Nothing matches${leased(dry)}.`;
  return `${entries(dry.entries)} of ${count(dry.partitions)} ${dry.partitions === 1 ? "partition" : "partitions"} match${leased(dry)}.`;
}
