// Who delivers, and how full the batches are.

import { count, percent } from "./format.js";
import { state } from "./state.js";
import { html } from "./ui.js";

export function Workers() {
  const { workers, batch_fill: fill, role } = state.overview;
  return html`<section class="workers" aria-label="Workers and batches">
    <div><div class="bar"><h2>Workers and batches</h2><span class="muted">of this process</span></div>
    ${role === "ingest" || !workers?.size ? html`<p class="muted">No workers here: this process does not deliver.</p>`
      : html`<p>writes under way: <b>${count(workers.busy)}</b></p>`}</div>
    ${fill?.counts?.some((c) => c > 0) && html`<${Histogram} ...${fill} />`}
  </section>`;
}

function Histogram({ le, counts }) {
  const total = counts.reduce((a, b) => a + b, 0);
  const top = Math.max(...counts);
  const span = (i) => (i === 0 || le[i] - le[i - 1] === 1 ? String(le[i]) : `${le[i - 1] + 1}–${le[i]}`);
  return html`<table class="histogram"><caption>Entries in a batch, of ${count(total)} batches</caption>
    <tbody>${counts.slice(0, le.length).map((c, i) => html`<tr><th scope="row">${span(i)}</th>
      <td><svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect width=${(c / top) * 100} height="10" /></svg></td>
      <td class="n">${percent(c / total)}</td></tr>`)}</tbody></table>`;
}
