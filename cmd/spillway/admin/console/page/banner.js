// The answers to the three questions, above everything else.

import { diagnose, lostLately, pauseText } from "./diagnosis.js";
import { data } from "./history.js";
import { count } from "./format.js";
import { chosen, openDrawer, set, state } from "./state.js";
import { Action, html, Text } from "./ui.js";
import { resume } from "./pause.js";

export function Banner() {
  if (!state.overview) return null;
  const { level, headline, findings, more } = diagnose(state.overview, chosen(), state.culprits, lostLately(data));
  return html`<section class=${"banner " + level} aria-label="Is data being lost?">
    <p class="headline"><span class="question">Is data being lost?</span> <strong>${headline}</strong></p>
    ${findings.length > 0 && html`<ul class="findings">${findings.map((f) => html`<${Finding} key=${f.namespace} ...${f} />`)}</ul>`}
    ${more > 0 && html`<p class="more">and ${count(more)} more: see the namespaces below</p>`}
  </section>
  <${Pauses} />`;
}

function Finding({ namespace, level, lost, partitions, why }) {
  return html`<li class=${level}>
    ${namespace && html`<button type="button" class="link whose" onClick=${() => set({ namespace })}><${Text} of=${namespace} cut=${40} /></button> `}
    ${level === "losing" && namespace ? "loses entries: " : ""}${lost}${why.length > 0 && "; " + why.join("; ")}.
    ${partitions.length > 0 && html` Most in ${partitions.map((p, i) => html`${i > 0 && ", "}<button type="button" class="link"
      onClick=${() => openDrawer("drops", namespace, p.partition)}><${Text} of=${p.partition} cut=${40} /></button> (${p.text})`)}.`}
  </li>`;
}

/** What is paused: nobody should wonder why nothing is delivered. */
function Pauses() {
  const now = state.overview.now_ms;
  const paused = chosen().filter((n) => n.paused);
  return html`${paused.map((n) => html`<div class="pause" role="status" key=${n.namespace}>
    <p>Delivery of <b><${Text} of=${n.namespace} cut=${40} /></b> is ${pauseText(n.paused, now)}. Entries still come, are evicted and expire.</p>
    <${Action} needs="operator" onAct=${() => resume(n.namespace)} label=${"Resume delivery of " + n.namespace}>Resume<//>
  </div>`)}`;
}
