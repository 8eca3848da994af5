// One row of the table of partitions.

import { count, duration, percent, rate, short } from "./format.js";
import { pause, resume } from "./pause.js";
import { purge } from "./purge.js";
import { openDrawer, state } from "./state.js";
import { Action, Chip, html, Text } from "./ui.js";

export function PartitionRow({ p, namespace, index, now }) {
  const { namespaces, near } = state.overview;
  const of = namespaces.find((n) => n.namespace === namespace);
  const share = of?.max_age_ms > 0 ? p.oldest_age_ms / of.max_age_ms : 0;
  const nears = (part, limit) => (part >= 1 ? "n bad-text" : part >= limit ? "n warn-text" : "n");
  const loses = (f) => (f > 0 ? "n bad-text" : "n");
  return html`<tr aria-rowindex=${index} class=${p.gone ? "gone" : ""}>
    <th scope="row"><button type="button" class="link" onClick=${() => openDrawer("peek", namespace, p.partition)}><${Text} of=${p.partition} cut=${48} /></button>
      ${p.paused && html` <${Chip} kind="warn">paused<//>`}${p.leased && html` <small class="leased" title="a worker delivers it now">leased</small>`}</th>
    <td class="n">${short(p.depth)}</td>
    <td class=${nears(p.fill, near.full)} title=${`${count(p.depth)} of ${count(p.capacity)}`}>${percent(p.fill)}</td>
    <td class=${nears(share, near.max_age)}>${duration(p.oldest_age_ms)}</td>
    <td class="n">${rate(p.in_per_s)}</td><td class="n">${rate(p.out_per_s)}</td>
    <td class=${loses(p.evicted_per_s)} title=${`${count(p.evicted)} in all`}>${rate(p.evicted_per_s)}</td>
    <td class=${loses(p.expired_per_s)} title=${`${count(p.expired)} in all`}>${rate(p.expired_per_s)}</td>
    <td class="error">${p.last_error ? html`<${Text} of=${p.last_error} cut=${60} />` : ""}${p.attempt > 1 ? html` <span class="muted">attempt ${count(p.attempt)}${p.due_at_ms > now ? ", next in " + duration(p.due_at_ms - now) : ""}</span>` : ""}</td>
    <td class="acts"><${Action} needs="operator" onAct=${() => openDrawer("peek", namespace, p.partition)} label=${"Peek into " + p.partition}>peek<//>
      ${p.paused ? html`<${Action} needs="operator" onAct=${() => resume(namespace, p.partition)} label=${"Resume " + p.partition}>resume<//>`
      : html`<${Action} needs="operator" onAct=${() => pause(namespace, p.partition)} label=${"Pause " + p.partition}>pause<//>`}
      <${Action} needs="admin" kind="danger" onAct=${() => purge(namespace, p.partition)} label=${"Purge " + p.partition}>purge<//></td>
  </tr>`;
}
