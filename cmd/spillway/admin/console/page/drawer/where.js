// Which namespace and partition a tab looks into.

import { set, state } from "../state.js";
import { html, NamespaceSelect } from "../ui.js";

/** Fields for both. all: the text of the choice of all namespaces, where a tab has it. */
export function Where({ drawer, names, all, partition = true }) {
  const change = (to) => set({ drawer: { ...state.drawer, ...to } });
  return html`<${NamespaceSelect} value=${drawer.namespace} names=${names} all=${all} onChoose=${(namespace) => change({ namespace, partition: "" })} />
    ${partition && html`<label class="field"><span>Partition</span><input type="text" value=${drawer.partition} placeholder=${partition === true ? "any" : partition}
      spellcheck=${false} onChange=${(e) => change({ partition: e.target.value.trim() })} /></label>`}`;
}

/** The namespace of a tab that needs one: the chosen one, or that with most of a figure of the overview, or the first. */
export function namespaceOf(drawer, names, figure) {
  if (drawer.namespace || !figure) return drawer.namespace || names[0];
  const of = (name) => state.overview?.namespaces.find((n) => n.namespace === name)?.[figure] ?? 0;
  return names.reduce((most, name) => (of(name) > of(most) ? name : most), names[0]);
}
