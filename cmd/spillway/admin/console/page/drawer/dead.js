// Dead letters by cause: look, deliver again, or delete.

import { get, path } from "../api.js";
import { Causes } from "../causes.js";
import { bytes, count, duration, time, visible } from "../format.js";
import { openQueues } from "../queues.js";
import { forbidden, openDrawer, state } from "../state.js";
import { Action, Component, html } from "../ui.js";
import { remove, replay } from "./deadacts.js";
import { Payload, PayloadChoices } from "./payload.js";
import { namespaceOf, Where } from "./where.js";

export class Dead extends Component {
  state = { cause: "", causes: null, answer: null, letters: [], open: {}, pretty: true, unmasked: false, error: "" };

  componentDidMount() {
    this.ask();
  }

  componentDidUpdate(before) {
    const { namespace, partition } = this.props.drawer;
    if (before.drawer.namespace !== namespace || before.drawer.partition !== partition) this.setState({ cause: "" }, () => this.ask());
  }

  componentWillUnmount() {
    this.gone = true;
  }

  namespace() {
    return namespaceOf(this.props.drawer, this.props.names, "dead_letters");
  }

  // after asks for the letters after those shown.
  async ask(after = "") {
    const why = forbidden("operator");
    if (why) return this.setState({ answer: null, letters: [], error: why });
    const asked = (this.asked = {});
    let change;
    try {
      const route = path("namespaces", this.namespace(), "dead");
      const causes = after ? this.state.causes : await get(route, { by: "cause" });
      const cause = causes.causes.some((c) => c.cause === this.state.cause) ? this.state.cause : ""; // all of it may be gone
      const answer = await get(route, { limit: 50, after, cause, partition: this.props.drawer.partition });
      change = { answer, causes, cause, letters: after ? [...this.state.letters, ...answer.letters] : answer.letters ?? [], error: "" };
    } catch (err) {
      change = { error: err.message };
    }
    if (!this.gone && this.asked === asked) this.setState(change);
  }

  async inspect(letter) {
    const open = { ...this.state.open };
    if (open[letter]) {
      delete open[letter];
      return this.setState({ open });
    }
    let payload;
    try {
      payload = await get(path("namespaces", this.namespace(), "dead", letter), { unmasked: this.state.unmasked }, { exact: true });
    } catch (err) {
      payload = { text: err.message };
    }
    if (!this.gone) this.setState({ open: { ...this.state.open, [letter]: payload } });
  }

  choose(cause) {
    this.setState({ cause: this.state.cause === cause ? "" : cause, open: {} }, () => this.ask());
  }

  render({ drawer, names }, { cause, causes, answer, letters, open, pretty, unmasked, error }) {
    const namespace = this.namespace();
    const selection = { ...(cause && { cause }), ...(drawer.partition && { partition: drawer.partition }) };
    const done = () => this.ask();
    return html`<div class="bar"><${Where} drawer=${{ ...drawer, namespace }} names=${names} />
        <${PayloadChoices} pretty=${pretty} unmasked=${unmasked} onChange=${(to) => this.setState("unmasked" in to ? { ...to, open: {} } : to)} />
        <button type="button" onClick=${done}>Look again</button></div>
      ${error && html`<p class="rejected" role="alert">${error}</p>`}
      ${causes?.looked > 0 && html`<${Causes} of=${causes} chosen=${cause} onChoose=${(of) => this.choose(of)} />`}
      ${answer && html`<div class="bar"><span class="muted">${count(answer.total)} ${answer.total === 1 ? "letter" : "letters"}, ${bytes(answer.bytes)}</span>
          ${letters.length > 0 && html`<${Action} needs="operator" onAct=${() => replay(namespace, selection, done)}>Replay these …<//>
          <${Action} needs="admin" kind="danger" onAct=${() => remove(namespace, selection, done)}>Delete these …<//>`}</div>
        ${letters.length === 0 && !answer.next && html`<p class="muted">No dead letter${cause || drawer.partition ? " matches" : ` of ${visible(namespace)}`}.</p>`}`}
      <${Elsewhere} namespace=${namespace} />
      <ol class="entries">${letters.map((l) => html`<${Letter} key=${l.letter} l=${l} payload=${open[l.letter]} pretty=${pretty} onInspect=${() => this.inspect(l.letter)}
        onReplay=${() => replay(namespace, { letters: [l.letter] }, done)} onRemove=${() => remove(namespace, { letters: [l.letter] }, done)} />`)}</ol>
      ${answer?.next && html`<button type="button" onClick=${() => this.ask(answer.next)}>Show more</button>`}`;
  }
}

// Dead letters of other namespaces, and dead jobs, so that none here does not read as none anywhere.
function Elsewhere({ namespace }) {
  const { namespaces, queues = [] } = state.overview;
  const entries = namespaces.filter((n) => n.dead_letters > 0 && n.namespace !== namespace);
  const jobs = queues.filter((q) => q.ledger.dead > 0);
  if (!entries.length && !jobs.length) return null;
  return html`<p class="muted">Elsewhere: ${entries.map((n) => html`<button type="button" class="link" onClick=${() => openDrawer("dead", n.namespace)}>${visible(n.namespace)}</button> ${count(n.dead_letters)} `)}
    ${jobs.map((q) => html`<button type="button" class="link" onClick=${() => openQueues(q.namespace)}>${visible(q.namespace)}</button> ${count(q.ledger.dead)} dead ${q.ledger.dead === 1 ? "job" : "jobs"} `)}</p>`;
}

function Letter({ l: listed, payload, pretty, onInspect, onReplay, onRemove }) {
  const l = { ...payload, ...listed }; // the id is with the payload
  return html`<li class="entry">
    <p class="meta"><b class="bad-text">${visible(l.reason)}</b> <span>${visible(l.partition)}</span> ${l.id && html`<span>id <b>${visible(l.id)}</b></span>`}
      ${l.dead_at_ms && html`<span>${time(l.dead_at_ms)}, ${duration(state.overview.now_ms - l.dead_at_ms)} ago</span>`} <span>attempt ${count(l.attempt)}</span> <span>${bytes(l.bytes)}</span></p>
    ${l.detail && html`<p class="detail">${visible(l.detail)}</p>`}
    <p class="acts"><${Action} needs="operator" onAct=${onInspect}>${payload ? "close" : "inspect"}<//>
      <${Action} needs="operator" onAct=${onReplay}>replay<//><${Action} needs="admin" kind="danger" onAct=${onRemove}>delete<//></p>
    ${payload && html`<${Payload} of=${payload} pretty=${pretty} />`}
  </li>`;
}
