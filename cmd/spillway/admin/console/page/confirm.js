// One dialog for every act: what will happen, what it takes, and for what cannot be undone the
// exact count, which the reader types.
//
// state.confirm = {title, text, verb, fields: [{name, label, type, value, hint}], act(values, count),
//   count(values) → {n, text}: the dry run; without it nothing is typed. danger: a red button.
//   command(values): the same from the command line.}
// act returns true to close the dialog, or a text that says why not.

import { count } from "./format.js";
import { set, state } from "./state.js";
import { Component, createRef, html } from "./ui.js";

// Takes what is shown into the clipboard, where the browser lets a page do so, and else chooses it for the keyboard.
function copy(shown) {
  getSelection().selectAllChildren(shown);
  navigator.clipboard?.writeText(shown.textContent).catch(() => {});
}

export class Confirm extends Component {
  dialog = createRef();
  state = { values: Object.fromEntries((this.props.spec.fields ?? []).map((f) => [f.name, f.value])), counted: null, counting: false, typed: "", busy: false, rejected: "" };

  componentDidMount() {
    this.opener = document.activeElement;
    this.dialog.current.showModal();
    this.count();
  }

  componentWillUnmount() {
    this.gone = true;
    this.opener?.isConnected && this.opener.focus();
  }

  async count(values = this.state.values) {
    const { spec } = this.props;
    if (!spec.count) return;
    const asked = (this.asked = {}); // a later question makes this answer worthless
    this.setState({ counting: true, counted: null, typed: "", rejected: "" });
    let change;
    try {
      change = { counted: await spec.count(values) };
    } catch (err) {
      change = { rejected: err.message };
    }
    if (!this.gone && this.asked === asked) this.setState({ counting: false, ...change });
  }

  change(field, value) {
    this.setState({ values: { ...this.state.values, [field.name]: value }, rejected: "" });
    if (field.counts) {
      this.asked = null;
      this.setState({ counted: null, typed: "" });
    }
  }

  ready() {
    const { counted, typed, busy } = this.state;
    if (busy) return false;
    return !this.props.spec.count || (counted?.n > 0 && typed.replace(/[\s,.’']/g, "") === String(counted.n));
  }

  async act(event) {
    event.preventDefault();
    if (!this.ready()) return;
    this.setState({ busy: true, rejected: "" });
    let result;
    try {
      result = await this.props.spec.act(this.state.values, this.state.counted?.n);
    } catch (err) {
      result = err.message;
    }
    if (result === true) return set({ confirm: null });
    if (!this.gone) this.setState({ busy: false, rejected: result || "it did not work" });
  }

  render({ spec }, { values, counted, counting, typed, busy, rejected }) {
    const stale = spec.count && !counted && !counting;
    return html`<dialog ref=${this.dialog} class="confirm" aria-labelledby="confirm-title" onClose=${() => set({ confirm: null })}>
      <form method="dialog" onSubmit=${(e) => this.act(e)} autocomplete="off">
        <h2 id="confirm-title">${spec.title}</h2>
        <p>${spec.text}</p>
        ${(spec.fields ?? []).map((f) => html`<label class="field"><span>${f.label}</span>
          <input type=${f.type} min=${f.min} value=${values[f.name] ?? f.value} onInput=${(e) => this.change(f, e.target.value)}
            onChange=${(e) => f.counts && this.count({ ...this.state.values, [f.name]: e.target.value })} />
          ${f.hint && html`<small>${f.hint}</small>`}</label>`)}
        ${spec.command && html`<div class="command"><small>The same from the command line</small> <button type="button" class="action" onClick=${(e) => copy(e.target.nextElementSibling)}>copy</button><pre class="payload" tabindex="0">${spec.command(values)}</pre></div>`}
        ${counting && html`<p role="status">Counting …</p>`}
        ${counted && html`<p class="counted" role="status">${counted.text}</p>`}
        ${counted?.n > 0 && html`<label class="field typed"><span>Type <b>${counted.n}</b> to confirm</span>
          <input type="text" inputmode="numeric" value=${typed} onInput=${(e) => this.setState({ typed: e.target.value })} /></label>`}
        ${rejected && html`<p class="rejected" role="alert">${rejected}</p>`}
        <p class="buttons">
          <button type="button" onClick=${() => set({ confirm: null })}>Cancel</button>
          ${stale && html`<button type="button" onClick=${() => this.count()}>Count again</button>`}
          <button type="submit" class=${spec.danger ? "danger" : "primary"} disabled=${!this.ready()}>${busy ? "…" : spec.verb}${counted?.n > 0 ? " " + count(counted.n) : ""}</button>
        </p>
      </form>
    </dialog>`;
  }
}

/** The open confirmation, or nothing. */
export const Confirmation = () => state.confirm && html`<${Confirm} key=${state.confirm.title} spec=${state.confirm} />`;
