// Who did what.

import { get } from "../api.js";
import { count, time, visible } from "../format.js";
import { Component, html } from "../ui.js";

export class Audit extends Component {
  state = { acts: null, error: "" };

  componentDidMount() {
    this.ask();
  }

  componentWillUnmount() {
    this.gone = true;
  }

  async ask() {
    let change;
    try {
      change = { acts: (await get("audit", { limit: 1000 })).acts ?? [], error: "" };
    } catch (err) {
      change = { error: err.message };
    }
    if (!this.gone) this.setState(change);
  }

  render(_, { acts, error }) {
    return html`<div class="bar"><span class="muted">The last 1,000 acts since this process started; each is in its log too.</span>
        <button type="button" onClick=${() => this.ask()}>Look again</button></div>
      ${error && html`<p class="rejected" role="alert">${error}</p>`}
      ${acts?.length === 0 && html`<p class="muted">Nobody did anything yet.</p>`}
      <ol class="entries">${(acts ?? []).map((a, i) => html`<li class="entry" key=${a.at_ms + " " + i}>
        <p class="meta"><b>${visible(a.action)}</b> <span>${visible([a.namespace, a.partition].filter(Boolean).join("/"))}</span>
          <span>${time(a.at_ms)}</span> <span>by <b>${visible(a.name)}</b>, ${visible(a.role)}</span> ${a.entries != null && html`<span>${count(a.entries)} entries</span>`}</p>
        <p>${visible(a.detail)} ${a.result === "ok" ? html`<span class="ok-text">ok</span>` : html`<span class="bad-text">${visible(a.result)}</span>`}</p></li>`)}</ol>`;
  }
}
