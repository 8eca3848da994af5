// The oldest or newest entries of a partition, without taking them.

import { get, path } from "../api.js";
import { entries } from "../format.js";
import { forbidden } from "../state.js";
import { Choice, Component, html } from "../ui.js";
import { Entry, PayloadChoices } from "./payload.js";
import { namespaceOf, Where } from "./where.js";

export class Peek extends Component {
  state = { from: "oldest", pretty: true, unmasked: false, answer: null, error: "" };

  componentDidMount() {
    this.ask();
  }

  componentDidUpdate(before) {
    const { namespace, partition } = this.props.drawer;
    if (before.drawer.namespace !== namespace || before.drawer.partition !== partition) this.ask();
  }

  componentWillUnmount() {
    this.gone = true;
  }

  async ask() {
    const { drawer, names } = this.props;
    const { from, unmasked } = this.state;
    const why = forbidden("operator");
    if (why || !drawer.partition) return this.setState({ answer: null, error: why });
    const asked = (this.asked = {});
    let change;
    try {
      const answer = await get(path("namespaces", namespaceOf(drawer, names), "partitions", drawer.partition, "peek"), { limit: 20, from, unmasked }, { exact: true });
      change = { answer: { ...answer, entries: answer.entries ?? [] }, error: "" };
    } catch (err) {
      change = { answer: null, error: err.message };
    }
    if (!this.gone && this.asked === asked) this.setState(change);
  }

  change(to) {
    this.setState(to, () => !("pretty" in to) && this.ask());
  }

  render({ drawer, names }, { from, pretty, unmasked, answer, error }) {
    return html`<div class="bar"><${Where} drawer=${{ ...drawer, namespace: namespaceOf(drawer, names) }} names=${names} partition="name of a partition" />
        <${Choice} name="from" label="From" value=${from} options=${[["oldest", "oldest"], ["newest", "newest"]]} onChoose=${(v) => this.change({ from: v })} />
        <${PayloadChoices} pretty=${pretty} unmasked=${unmasked} onChange=${(to) => this.change(to)} />
        <button type="button" onClick=${() => this.ask()}>Look again</button></div>
      ${error && html`<p class="rejected" role="alert">${error}</p>`}
      ${!drawer.partition && !error && html`<p class="muted">Name a partition, or choose one in the table.</p>`}
      ${answer && html`<p class="muted">${entries(answer.depth)} waiting; ${answer.entries.length < answer.depth ? `the ${from} ${answer.entries.length}` : "all of them"}, oldest first. Looking takes nothing away.</p>
        <ol class="entries">${answer.entries.map((e) => html`<${Entry} key=${e.seq} e=${e} pretty=${pretty} />`)}</ol>`}`;
  }
}
