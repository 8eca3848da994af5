// The panel at the side: entries, dead letters, drops and acts, one tab each.

import { set, state } from "../state.js";
import { Component, createRef, html } from "../ui.js";
import { Audit } from "./audit.js";
import { Dead } from "./dead.js";
import { Drops } from "./drops.js";
import { Peek } from "./peek.js";
import { Schedule } from "./schedule.js";
import { Tail } from "./tail.js";

const tabs = [["peek", "Peek", Peek], ["tail", "Live tail", Tail], ["dead", "Dead letters", Dead], ["drops", "Drops", Drops], ["schedule", "Schedule", Schedule], ["audit", "Audit", Audit]];
// Those that look into one kind of namespace, where the service has it.
const shownTabs = () => tabs.filter(([id]) => (id === "schedule" ? state.overview.queues?.length > 0 : id === "audit" || state.overview.namespaces.length > 0));

/** The open drawer, or nothing. */
export const Drawer = () => state.drawer && state.overview && html`<${Panel} drawer=${state.drawer} />`;

class Panel extends Component {
  box = createRef();

  componentDidMount() {
    this.opener = document.activeElement;
    this.escape = (e) => e.key === "Escape" && !state.confirm && set({ drawer: null });
    addEventListener("keydown", this.escape);
    this.box.current.focus();
  }

  componentWillUnmount() {
    removeEventListener("keydown", this.escape);
    this.opener?.isConnected && this.opener.focus();
  }

  // Arrows move between tabs, as in any list of tabs.
  keys(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const tabs = shownTabs();
    const at = tabs.findIndex(([id]) => id === this.props.drawer.tab);
    const next = tabs[(at + step + tabs.length) % tabs.length][0];
    this.show(next);
    document.getElementById("tab-" + next)?.focus();
  }

  show(tab) {
    set({ drawer: { ...state.drawer, tab } });
  }

  render({ drawer }) {
    const [id, title, Body] = shownTabs().find(([id]) => id === drawer.tab) ?? shownTabs()[0];
    return html`<div class="drawer" role="dialog" aria-label=${title} tabindex="-1" ref=${this.box}>
      <div class="drawer-head">
        <div role="tablist" aria-label="What to look into" onKeyDown=${(e) => this.keys(e)}>${shownTabs().map(([t, name]) => html`
          <button type="button" role="tab" id=${"tab-" + t} aria-selected=${String(t === id)} aria-controls="drawer-body" tabindex=${t === id ? 0 : -1} onClick=${() => this.show(t)}>${name}</button>`)}</div>
        <button type="button" class="close" aria-label="Close" onClick=${() => set({ drawer: null })}>✕</button>
      </div>
      <div class="drawer-body" id="drawer-body" role="tabpanel" aria-labelledby=${"tab-" + id} tabindex="0">
        <${Body} key=${id} drawer=${drawer} names=${state.overview.namespaces.map((n) => n.namespace)} />
      </div>
    </div>`;
  }
}
