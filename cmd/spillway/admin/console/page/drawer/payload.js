// What an entry holds, as text that shows everything it has.

import { bytes, duration, longest, time, visible } from "../format.js";
import { forbidden, state } from "../state.js";
import { Choice, html } from "../ui.js";

/** The payload of an entry: JSON in one line or indented; other bytes as text or base64. */
export function Payload({ of, pretty }) {
  const cut = of.cut ? ` (cut at ${bytes(longest)})` : "";
  if (of.data !== undefined) return html`<pre class="payload" tabindex="0">${visible(JSON.stringify(of.data, null, pretty ? 2 : 0))}</pre>`;
  if (of.text !== undefined) return html`<pre class="payload" tabindex="0">${visible(of.text)}</pre><small class="muted">text, not JSON${cut}</small>`;
  return html`<pre class="payload" tabindex="0">${visible(of.base64)}</pre><small class="muted">base64: the bytes are no text${cut}</small>`;
}

/** An entry with what is known about it. */
export function Entry({ e, pretty, where }) {
  return html`<li class="entry">
    <p class="meta">${where && html`<b>${visible(where)}</b> `}<span>${e.seq == null ? "" : "#" + e.seq}</span> ${e.id && html`<span>id <b>${visible(e.id)}</b></span>`}
      <span title=${e.occurred_at_ms ? new Date(e.occurred_at_ms).toISOString() : ""}>${time(e.occurred_at_ms)}</span>
      ${e.age_ms != null && html`<span>${duration(e.age_ms)} old</span>`} <span>${bytes(e.bytes)}</span></p>
    <${Payload} of=${e} pretty=${pretty} />
  </li>`;
}

/** How payloads are shown; admins may see the masked fields. */
export function PayloadChoices({ pretty, unmasked, onChange }) {
  const why = forbidden("admin");
  const masked = state.info?.mask_fields?.length ? `fields shown as ***: ${visible(state.info.mask_fields.join(", "))}` : "no field is masked";
  return html`<${Choice} name="pretty" label="Show" value=${pretty} options=${[[false, "raw"], [true, "pretty"]]} onChoose=${(v) => onChange({ pretty: v })} />
    <label class="check" title=${why || masked}><input type="checkbox" checked=${unmasked} disabled=${why !== ""} onChange=${(e) => onChange({ unmasked: e.target.checked })} />unmasked${why && html` <small class="muted">(${why})</small>`}</label>`;
}
