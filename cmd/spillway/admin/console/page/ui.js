// What every part of the page is made with.

import { h } from "./lib/preact/preact.mjs";
import htm from "./lib/htm/htm.module.js";
import { forbidden, notice } from "./state.js";
import { visible } from "./format.js";

export { Component, createRef, Fragment, render } from "./lib/preact/preact.mjs";

/** html`<p>${text}</p>` makes elements; a text in it is always a text, never HTML. */
export const html = htm.bind(h);

/**
 * A button that needs a role. Without the role it stays in reach of keyboard and screen reader,
 * does nothing, and says why.
 */
export function Action({ needs, onAct, children, kind = "", label }) {
  const why = needs ? forbidden(needs) : "";
  const act = (event) => {
    event.stopPropagation();
    if (why) notice(why, "info");
    else onAct(event);
  };
  return html`<button type="button" class=${"action " + kind} aria-disabled=${why ? "true" : undefined}
    title=${why || undefined} aria-label=${label && visible(why ? `${label} (${why})` : label)} onClick=${act}>${children}</button>`;
}

let wanted = ""; // id of a part that may be out of sight

/** Brings a part of the page into sight, as soon as it has its rows: then the page is long enough to scroll. */
export const want = (id) => (wanted = id);

/** Tells that a part has its rows. */
export function arrived(id) {
  if (wanted !== id) return;
  wanted = "";
  document.getElementById(id)?.scrollIntoView();
}

/** A state in one word, with a colour that repeats it. kind: ok, warn, bad or none. */
export function Chip({ kind = "", title, children }) {
  return html`<span class=${"chip " + kind} title=${title}>${children}</span>`;
}

/** A text from the server: what cannot be seen is written out. */
export function Text({ of, cut = 0 }) {
  const text = visible(of);
  const short = cut && text.length > cut ? text.slice(0, cut) + "…" : text;
  return html`<span class="text" dir="ltr" title=${short === text ? undefined : text.slice(0, 2000)}>${short}</span>`;
}

/** Radio buttons that look like one control. options: [[value, text], …] */
export function Choice({ name, label, value, options, onChoose }) {
  return html`<fieldset class="choice"><legend>${label}</legend>${options.map(([v, text]) => html`
    <label class=${v === value ? "chosen" : ""}><input type="radio" name=${name} checked=${v === value}
      onChange=${() => onChoose(v)} /><span>${text}</span></label>`)}</fieldset>`;
}

/** A select of the namespaces the server has. */
export function NamespaceSelect({ label = "Namespace", value, names, all, onChoose }) {
  return html`<label class="field"><span>${label}</span><select value=${value} onChange=${(e) => onChoose(e.target.value)}>
    ${all && html`<option value="">${all}</option>`}
    ${names.map((n) => html`<option value=${n}>${visible(n)}</option>`)}</select></label>`;
}
