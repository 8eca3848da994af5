// What the server finds, above everything else.

import { count, visible } from "./format.js";
import { refresh } from "./live.js";
import { pauseText, resume } from "./pause.js";
import { openQueues } from "./queues.js";
import { chosen, openDrawer, openQueue, set, state } from "./state.js";
import { Action, html, Text } from "./ui.js";

const maxNamed = 5;
const labels = { loss: "Lost", risk: "At risk", notice: "To know" };

export function Banner() {
  const { level, headline, findings } = state.overview.findings;
  document.title = level === "loss" ? "losing entries – Spillway" : "Spillway"; // for a tab among many
  const more = findings.length - maxNamed;
  return html`<section class=${"banner " + level} aria-label="Is data being lost?">
    <dl class="answers">
      <dt class="first">Is data being lost?</dt><dd class="first">${headline[0].toUpperCase() + headline.slice(1)}.</dd>
      ${findings.slice(0, maxNamed).map((f, i) => html`<${Finding} key=${f.namespace + "/" + f.what} ...${f} later=${i > 0} />`)}
    </dl>
    ${more > 0 && html`<p class="more">and ${count(more)} more: spillway check has all</p>`}
  </section>
  <${Pauses} />`;
}

function Finding({ namespace, partition, queue, level, what, why, command, later, ...finding }) {
  const choose = () => {
    if (state.overview.queues?.some((q) => q.namespace === namespace)) openQueues(namespace);
    else set({ namespace });
    refresh();
  };
  const next = later ? "next" : "";
  return html`<dt class=${next}>${labels[level]}</dt>
    <dd class=${next}>${namespace && html`<button type="button" class="link whose" onClick=${choose}><${Text} of=${namespace} cut=${40} /></button>`}${namespace && ": "}${visible(what)}.
      ${partition && html` <button type="button" class="link" onClick=${() => openDrawer("peek", namespace, partition)}>Peek into <${Text} of=${partition} cut=${40} /></button>`}
      ${queue && html` <button type="button" class="link" onClick=${() => openQueue(namespace, queue)}>Open <${Text} of=${queue} cut=${40} /></button>`}</dd>
    ${why && html`<dt>Why?</dt><dd>${visible(why)}.</dd>`}
    ${(finding.do || command) && html`<dt>What to do</dt><dd>${visible(finding.do)}${finding.do && command && ": "}${command && html`<code>${visible(command)}</code>`}</dd>`}`;
}

const maxPauses = 5; // that the page lists

/** What is paused: nobody should wonder why nothing is delivered. */
function Pauses() {
  const now = state.overview.now_ms;
  const whole = chosen().filter((n) => n.paused).map((n) => ({ ...n.paused, namespace: n.namespace }));
  const parts = state.pauses.filter((p) => p.partition && chosen().some((n) => n.namespace === p.namespace));
  const all = [...whole, ...parts];
  return html`${all.slice(0, maxPauses).map((p) => html`<div class="pause" key=${p.namespace + "/" + (p.partition ?? "")}>
      <p>Delivery of <b><${Text} of=${p.partition ? `${p.namespace}/${p.partition}` : p.namespace} cut=${80} /></b> is ${pauseText(p, now)}. Entries still come, are evicted and expire.</p>
      <${Action} needs="operator" onAct=${() => resume(p.namespace, p.partition)} label=${`Resume delivery of ${visible(p.partition ?? p.namespace)}`}>Resume<//>
    </div>`)}
    ${all.length > maxPauses && html`<p class="muted">${count(all.length - maxPauses)} more are paused: choose “paused only” in the table of partitions.</p>`}`;
}
