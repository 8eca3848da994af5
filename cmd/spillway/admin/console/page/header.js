// Where am I: mode, version, store, who I am, and how live the figures are.

import { duration, latency, time, visible } from "./format.js";
import { currentPace, refresh, setPace } from "./live.js";
import { openQueues, openSchedules } from "./queues.js";
import { openDrawer, set, state } from "./state.js";
import { chooseTheme, theme } from "./theme.js";
import { Chip, Choice, html, NamespaceSelect } from "./ui.js";

const roles = { all: "ingest and drain", ingest: "ingest only", drain: "drain only" };

export function Header() {
  const { info, overview, failing } = state;
  const names = overview?.namespaces.map((n) => n.namespace) ?? [];
  const every = [...names, ...(overview?.queues ?? []).map((q) => q.namespace)];
  const choose = (namespace) => {
    set({ namespace: names.includes(namespace) ? namespace : "", jobs: "", page: null });
    if (namespace && !names.includes(namespace)) openQueues(namespace);
    refresh();
  };
  return html`<header>
    <div class="brand"><b>Spillway</b>
      ${info && html`<span class="muted" title=${`revision ${visible(info.revision)}, ${visible(info.go_version)}, started ${time(info.started_at_ms)}`}>
        ${visible(info.version)} · ${roles[info.role] ?? visible(info.role)}${overview && ` · up ${duration(overview.now_ms - info.started_at_ms)}`}</span>`}
    </div>
    <${Store} store=${overview?.store ?? info?.store} />
    ${failing && html`<${Chip} kind="bad">no news since ${time(failing.since)}: ${failing.message}<//>`}
    ${info && html`<span class="you">you are <b>${visible(info.you.name)}</b>, role <b>${info.you.role}</b></span>`}
    <nav aria-label="Look into">
      ${names.length > 0 && html`<button type="button" onClick=${() => openDrawer("drops", state.namespace)}>Why was my event dropped?</button>
      <button type="button" onClick=${() => openDrawer("dead", state.namespace)}>Dead letters</button>
      <button type="button" onClick=${() => openDrawer("tail", state.namespace)}>Live tail</button>`}
      ${overview?.queues?.length > 0 && html`<button type="button" onClick=${() => openQueues(state.jobs)}>Queues</button>
      <button type="button" onClick=${() => openSchedules(state.jobs)}>Schedules</button>`}
      <button type="button" onClick=${() => openDrawer("audit")}>Audit trail</button>
    </nav>
    <div class="controls">
      ${every.length > 0 && html`<${NamespaceSelect} value=${state.namespace || state.jobs} names=${every} all=${every.length > 1 ? `all ${every.length}` : "all"} onChoose=${choose} />`}
      <${Choice} name="pace" label="Updates" value=${currentPace()} options=${[[0, "pause"], [1000, "1 s"], [5000, "5 s"]]} onChoose=${setPace} />
      <${Choice} name="theme" label="Theme" value=${theme()} options=${[["auto", "auto"], ["dark", "dark"], ["light", "light"]]}
        onChoose=${(t) => { chooseTheme(t); set({}); }} />
    </div>
  </header>`;
}

function Store({ store }) {
  if (!store) return null;
  const version = store.redis_version ? ` ${visible(store.redis_version)}` : "";
  const away = store.rtt_ms == null ? "" : `, ${latency(store.rtt_ms)} away`;
  return html`<span class="store" title=${visible(store.url)}><span class="muted">store</span> ${visible(store.mode)}${version}${away}</span>
    ${store.ready ? html`<${Chip} kind="ok">ready<//>` : html`<${Chip} kind="bad">not ready: ${visible(store.error)}<//>`}`;
}
