// Dead letters by cause, those of most first.

import { count } from "./format.js";
import { html, Text } from "./ui.js";

const most = 10; // that are listed

/** The table; with onChoose each cause is a button. */
export const Causes = ({ of, chosen, onChoose }) => html`<table class="causes"><caption>By cause, of ${of.complete ? "" : "the newest "}${count(of.looked)}</caption>
  <tbody>${of.causes.slice(0, most).map((c) => html`<tr key=${c.cause}><th scope="row">${onChoose && c.cause
    ? html`<button type="button" class="link" aria-pressed=${String(chosen === c.cause)} onClick=${() => onChoose(c.cause)}><${Text} of=${c.cause} /></button>`
    : html`<${Text} of=${c.cause || "any other"} />`}</th><td class="n">${count(c.count)}</td></tr>`)}</tbody></table>`;
