// The page, from top to bottom.

import { Banner } from "./banner.js";
import { Charts } from "./charts.js";
import { Confirmation } from "./confirm.js";
import { Drawer } from "./drawer/drawer.js";
import { Header } from "./header.js";
import { Namespaces } from "./namespaces.js";
import { Partitions } from "./partitions.js";
import { QueuePage } from "./queuepage.js";
import { QueueNamespaces } from "./queues.js";
import { Sinks } from "./sinks.js";
import { dismiss, state } from "./state.js";
import { Tiles } from "./tiles.js";
import { Workers } from "./workers.js";
import { html } from "./ui.js";
import { visible } from "./format.js";

export function App() {
  const { page } = state;
  const partitions = state.overview?.namespaces.length > 0; // else every namespace is of kind queue
  return html`
    <${Header} />
    <main class=${state.failing ? "stale" : ""}>
      <h1 class="unseen">Spillway console</h1>
      ${state.overview && page ? html`<${QueuePage} key=${page.namespace + "/" + page.queue} ...${page} />` : state.overview ? html`<${Banner} />${partitions && html`<${Tiles} /><${Charts} /><${Namespaces} />`}<${QueueNamespaces} />${partitions && html`<${Partitions} />`}${(partitions || state.overview.queues?.some((q) => q.sinks.length)) && html`<${Sinks} />`}${partitions && html`<${Workers} />`}` : html`<p class="loading">${state.failing ? state.failing.message : "Asking the server …"}</p>`}
    </main>
    <${Drawer} />
    <${Confirmation} />
    <${Notices} />`;
}

function Notices() {
  return html`<div class="notices" role="status" aria-live="polite">${state.notices.map((n) => html`
    <div key=${n.id} class=${"notice " + n.kind}><span>${visible(n.text)}</span>
      <button type="button" aria-label="Dismiss" onClick=${() => dismiss(n.id)}>✕</button></div>`)}</div>`;
}
