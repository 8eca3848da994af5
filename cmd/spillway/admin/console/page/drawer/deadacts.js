// Replay and delete of dead letters: counted first, then confirmed with the number.

import { path, post } from "../api.js";
import { count, visible } from "../format.js";
import { refresh } from "../live.js";
import { notice, set } from "../state.js";

const letters = (n) => `${count(n)} ${n === 1 ? "letter" : "letters"}`;
const which = (s) => (s.letters ? "this letter" : [s.cause && `cause ${visible(s.cause)}`, s.partition && `partition ${visible(s.partition)}`].filter(Boolean).join(", ") || "all letters");

/** Puts the selected letters back into their partitions; done is called after it. */
export function replay(namespace, selection, done) {
  const route = path("namespaces", namespace, "dead", "replay");
  set({ confirm: {
    title: `Replay dead letters of ${visible(namespace)}: ${which(selection)}`,
    text: "Each letter goes back into its partition as a new entry and is delivered again. What the sink still rejects becomes a dead letter again.",
    fields: [{ name: "rate", label: "Letters a second, at most", type: "number", min: 1, value: "100" }],
    verb: "Replay",
    async count() {
      const dry = await post(route, { ...selection, dry_run: true });
      return { n: dry.replayed, text: dry.replayed ? `${letters(dry.replayed)} match.` : "Nothing matches." };
    },
    async act({ rate }, confirm) {
      const got = await post(route, { ...selection, per_second: Math.max(1, Math.floor(Number(rate)) || 100), confirm });
      const failed = got.failed > 0 ? `; ${letters(got.failed)} could not be: ${(got.errors ?? []).join("; ")}` : "";
      notice(`${letters(got.replayed)} replayed${got.complete ? "" : "; more match now"}${failed}`, failed ? "bad" : "info");
      await refresh();
      done();
      return true;
    },
  } });
}

/** Deletes the selected letters; done is called after it. */
export function remove(namespace, selection, done) {
  const route = path("namespaces", namespace, "dead", "delete");
  set({ confirm: {
    title: `Delete dead letters of ${visible(namespace)}: ${which(selection)}`,
    text: "The letters are gone then. The account keeps counting them as dead.",
    danger: true,
    verb: "Delete",
    async count() {
      const dry = await post(route, { ...selection, dry_run: true });
      return { n: dry.deleted, text: dry.deleted ? `${letters(dry.deleted)} match.` : "Nothing matches." };
    },
    async act(_, confirm) {
      const got = await post(route, { ...selection, confirm });
      notice(`${letters(got.deleted)} deleted${got.complete ? "" : "; more match now"}`, "info");
      await refresh();
      done();
      return true;
    },
  } });
}
