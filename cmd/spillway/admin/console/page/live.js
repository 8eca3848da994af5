// Asks the server for news, at the pace the reader chose. A hidden page asks nothing.

import { get } from "./api.js";
import * as history from "./history.js";
import { notice, set, state } from "./state.js";

const extra = new Set(); // what parts of the page ask at the same pace
let pace = 1000; // milliseconds; 0 is paused
let timer = 0;
let asking = false;

/** Asks with each poll, until the function it returns is called. */
export function poll(ask) {
  extra.add(ask);
  return () => extra.delete(ask);
}

/** Milliseconds between polls; 0 while updates are paused. */
export const currentPace = () => pace;

/** Changes the pace; 0 pauses. */
export function setPace(ms) {
  pace = ms;
  set({});
  restart();
}

/** Asks now, also when updates are paused: after an act, or when the reader chose something. */
export async function refresh() {
  await round();
  restart();
}

function restart() {
  clearTimeout(timer);
  if (pace > 0 && !document.hidden) timer = setTimeout(tick, pace);
}

async function tick() {
  const began = performance.now();
  await round();
  clearTimeout(timer);
  // A slow answer delays the next question; there is never more than one at a time.
  if (pace > 0 && !document.hidden) timer = setTimeout(tick, Math.max(pace - (performance.now() - began), pace / 4));
}

async function round() {
  if (asking) return;
  asking = true;
  try {
    await Promise.all([askOverview(), ...[...extra].map((ask) => ask())]);
  } finally {
    asking = false;
  }
}

async function askOverview() {
  try {
    // Info comes again after a failure: it may be another version that answers.
    const [overview, info] = await Promise.all([get("overview"), state.info && !state.failing ? state.info : get("info")]);
    if (state.namespace && !overview.namespaces.some((n) => n.namespace === state.namespace)) {
      notice(`there is no namespace ${state.namespace} (any more): these are all`, "info");
      set({ namespace: "" });
    }
    const paused = overview.namespaces.some((n) => n.paused_partitions > 0);
    const pauses = paused ? await get("pauses") : { pauses: [] };
    set({ overview, info, pauses: pauses.pauses ?? [], failing: null });
    history.follow(overview);
  } catch (err) {
    set({ failing: { message: err.message, since: state.failing?.since ?? Date.now() } });
  }
}

/** Starts polling. */
export function start() {
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refreshUnlessPaused()));
  refresh();
}

function refreshUnlessPaused() {
  if (pace > 0) refresh();
}
