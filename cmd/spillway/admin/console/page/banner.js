// The answers to the three questions, above everything else.

import { diagnose, lostLately, pauseText } from "./diagnosis.js";
import { count, visible } from "./format.js";
import { data } from "./history.js";
import { refresh } from "./live.js";
import { resume } from "./pause.js";
import { openQueues } from "./queues.js";
import { chosen, openDrawer, set, state } from "./state.js";
import { Action, html, Text } from "./ui.js";

export function Banner() {
  const { level, headline, findings, more } = diagnose(state.overview, chosen(), lostLately(data), state.namespace ? [] : state.overview.queues);
  document.title = level === "losing" ? "losing entries – Spillway" : "Spillway"; // for a tab among many
  return html`<section class=${"banner " + level} aria-label="Is data being lost?">
    <dl class="answers">
      <dt class="first">Is data being lost?</dt><dd class="first">${headline}</dd>
      ${findings.map((f, i) => html`<${Finding} key=${(f.kind ?? "") + "/" + f.namespace} ...${f} later=${i > 0} />`)}
    </dl>
    ${more > 0 && html`<p class="more">and ${count(more)} more: see the namespaces below</p>`}
  </section>
  <${Pauses} />`;
}

function Finding({ namespace, kind, level, lost, partitions, why, later }) {
  const choose = () => {
    if (kind === "queue") openQueues(namespace);
    else set({ namespace });
    refresh();
  };
  const next = later ? "next" : "";
  return html`<dt class=${next}>${level === "losing" ? "Whose?" : "At risk"}</dt>
    <dd class=${next}>${namespace && html`<button type="button" class="link whose" onClick=${choose}><${Text} of=${namespace} cut=${40} /></button>`}${namespace && ": "}${lost}.
      ${partitions.length > 0 && " Most in "}${partitions.map((p, i) => html`${i > 0 && ", "}<button type="button" class="link"
        onClick=${() => openDrawer("peek", namespace, p.partition)}><${Text} of=${p.partition} cut=${40} /></button> (${p.text})`)}${partitions.length > 0 && "."}</dd>
    ${why.length > 0 && html`<dt>Why?</dt><dd>${why.join("; ")}.</dd>`}`;
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
