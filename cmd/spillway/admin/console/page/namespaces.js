// The namespaces, their accounts, and what may be done to a whole one.

import { count, duration, rate, short } from "./format.js";
import { dropped, gone, known } from "./history.js";
import { refresh } from "./live.js";
import { pause, pauseText, resume } from "./pause.js";
import { purge } from "./purge.js";
import { chosen, openDrawer, set, state } from "./state.js";
import { failing, FailingSinks } from "./sinks.js";
import { Action, Chip, html, Text } from "./ui.js";

export function Namespaces() {
  const { namespaces, findings: { findings } } = state.overview;
  const worst = (n) => (findings.findIndex((f) => f.namespace === n.namespace) + 1 || Infinity); // they come with the worst first
  const shown = namespaces.toSorted((a, b) => (worst(a) === worst(b) ? 0 : worst(a) - worst(b)));
  return html`<section aria-label="Namespaces">
    <div class="bar"><h2>Namespaces</h2></div>
    <div class="scroll" tabindex="0" role="region" aria-label="Table of namespaces">
    <table>
      <thead><tr><th scope="col">namespace</th><th scope="col">delivery</th><th scope="col" class="n">accepted/s</th><th scope="col" class="n">delivered/s</th>
        <th scope="col" class="n">dropped/s</th><th scope="col" class="n">rejected/s</th><th scope="col" class="n">backlog</th><th scope="col" class="n">oldest</th>
        <th scope="col" class="n">limit</th><th scope="col" class="n">partitions</th><th scope="col" class="n">dead letters</th><th scope="col">actions</th></tr></thead>
      <tbody>${shown.map((n) => html`<${Row} key=${n.namespace} n=${n} />`)}</tbody>
    </table></div>
    <${Ledger} />
  </section>`;
}

function Row({ n }) {
  const lost = dropped(n.rates);
  const figure = (r) => rate(known(n) ? r : null);
  const choose = () => { set({ namespace: state.namespace === n.namespace ? "" : n.namespace }); refresh(); };
  return html`<tr class=${state.namespace === n.namespace ? "selected" : ""}>
    <th scope="row"><button type="button" class="link" aria-pressed=${String(state.namespace === n.namespace)} onClick=${choose}><${Text} of=${n.namespace} cut=${40} /></button></th>
    <td><${Delivery} n=${n} /></td>
    <td class="n">${figure(n.rates.accepted)}</td><td class="n">${figure(n.rates.delivered)}</td>
    <td class=${gone(n.rates) > 0 ? "n bad-text" : lost > 0 ? "n warn-text" : "n"}>${figure(lost)}</td><td class=${n.rates.rejected > 0 ? "n warn-text" : "n"}>${rate(n.rates.rejected)}</td>
    <td class="n">${short(n.buffered)}</td><td class="n">${duration(n.oldest_age_ms)}</td><td class="n">${duration(n.max_age_ms)}</td>
    <td class="n">${short(n.partitions)}</td>
    <td class="n">${n.dead_letters > 0 ? html`<button type="button" class="link" onClick=${() => openDrawer("dead", n.namespace)}>${short(n.dead_letters)}</button>` : "0"}</td>
    <td class="acts">${n.paused ? html`<${Action} needs="operator" onAct=${() => resume(n.namespace)} label=${"Resume " + n.namespace}>resume<//>`
      : html`<${Action} needs="operator" onAct=${() => pause(n.namespace)} label=${"Pause " + n.namespace}>pause<//>`}
      <${Action} needs="admin" kind="danger" onAct=${() => purge(n.namespace)} label=${"Purge " + n.namespace}>purge<//></td>
  </tr>`;
}

function Delivery({ n }) {
  if (n.paused) return html`<${Chip} kind="warn" title=${pauseText(n.paused, state.overview.now_ms)}>paused<//>`;
  if (n.sinks.some(failing)) return html`<${FailingSinks} sinks=${n.sinks} />`;
  if (!known(n)) return html`<${Chip} kind="warn">not known<//>`;
  if (n.paused_partitions > 0) return html`<${Chip} kind="warn">${count(n.paused_partitions)} paused<//>`;
  return n.sinks.length ? html`<${Chip} kind="ok">ok<//>` : html`<span class="muted">elsewhere</span>`;
}

/** The account that always adds up, in the server's figures. */
function Ledger() {
  const sum = (name) => chosen().reduce((total, n) => total + (n.ledger[name] ?? 0), 0);
  const parts = [["delivered"], ["evicted"], ["expired"], ["dead"], ["lost"], ["buffered"]];
  const more = [["purged", "purged"], ["reclaimed", "reclaimed"]].map(([name, word]) => [word, chosen().reduce((t, n) => t + (n[name] ?? 0), 0)]).filter(([, v]) => v > 0);
  return html`<p class="ledger"><span class="muted">account of ${state.namespace ? html`<${Text} of=${state.namespace} cut=${40} />` : "all"}:</span> <span><b>${count(sum("accepted"))}</b> accepted</span> = ${parts.map(([name], i) => html`${i > 0 && " + "}<span><b>${count(sum(name))}</b> ${name}</span>`)}
    ${more.map(([word, v]) => html` · <span class="muted">${count(v)} ${word}</span>`)}</p>`;
}
