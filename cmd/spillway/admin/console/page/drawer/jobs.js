// The jobs of a queue: the next one, one by its id, or the dead letters.

import { get, path } from "../api.js";
import { bytes, count, duration, time, visible } from "../format.js";
import { remove, removeDead, respawn } from "../jobacts.js";
import { forbidden, set, state } from "../state.js";
import { Action, Choice, Component, html, NamespaceSelect, Text } from "../ui.js";
import { Payload, PayloadChoices } from "./payload.js";
import { Trace } from "./trace.js";

const page = 20; // dead letters at once

export class Jobs extends Component {
  state = { list: [], total: null, classes: null, pretty: true, unmasked: false, error: "" };

  componentDidMount() {
    this.ask();
  }

  componentDidUpdate(before) {
    const { namespace, partition, part, id } = this.props.drawer;
    if (before.drawer.namespace !== namespace || before.drawer.partition !== partition || before.drawer.part !== part || before.drawer.id !== id) this.ask();
  }

  componentWillUnmount() {
    this.gone = true;
  }

  namespace() {
    return this.props.drawer.namespace || state.overview.queues?.[0]?.namespace || "";
  }

  // more asks for the dead letters after those shown.
  async ask(more = false) {
    const { partition: queue, part, id: job } = this.props.drawer;
    const { unmasked, list } = this.state;
    const why = forbidden("operator");
    if (why || !queue || !this.namespace()) return this.setState({ list: [], total: null, error: why });
    const route = path("namespaces", this.namespace(), "queues", queue);
    const asked = (this.asked = {});
    let change;
    try {
      if (part === "dead") {
        const answer = await get(route + "/dead", { limit: page, offset: more ? list.length : 0, classes: !more, unmasked }, { exact: true });
        change = { list: more ? [...list, ...answer.jobs] : answer.jobs, total: answer.total, error: "", ...(!more && { classes: answer.classes && { of: answer.classes, in: answer.classed } }) };
      } else if (part === "id" && !job) {
        change = { list: [], total: null, error: "" };
      } else {
        change = { list: [await get(route + (part === "id" ? "/" + path("jobs", job) : "/peek"), { unmasked }, { exact: true })], total: null, error: "" };
      }
    } catch (err) {
      change = { list: [], total: null, error: err.message };
    }
    if (!this.gone && this.asked === asked) this.setState(change);
  }

  change(to) {
    this.setState(to, () => !("pretty" in to) && this.ask());
  }

  render({ drawer }, { list, total, classes, pretty, unmasked, error }) {
    const namespace = this.namespace();
    const { partition: queue, id: job } = drawer;
    const part = drawer.part || "next";
    const choose = (to) => set({ drawer: { ...state.drawer, ...to } });
    const done = () => this.ask();
    return html`<div class="bar"><${NamespaceSelect} value=${namespace} names=${(state.overview.queues ?? []).map((q) => q.namespace)} onChoose=${(n) => choose({ namespace: n, partition: "" })} />
        <label class="field"><span>Queue</span><input type="text" value=${queue} placeholder="name of a queue" spellcheck=${false} onChange=${(e) => choose({ partition: e.target.value.trim() })} /></label>
        <${Choice} name="part" label="Which" value=${part} options=${[["next", "next"], ["dead", "dead letters"], ["id", "by id"]]} onChoose=${(v) => choose({ part: v })} />
        ${part === "id" && html`<label class="field"><span>Job</span><input type="text" value=${job} placeholder="id of a job" spellcheck=${false} onChange=${(e) => choose({ id: e.target.value.trim() })} /></label>`}
        <${PayloadChoices} pretty=${pretty} unmasked=${unmasked} onChange=${(to) => this.change(to)} />
        <button type="button" onClick=${done}>Look again</button></div>
      ${error && html`<p class="rejected" role="alert">${error}</p>`}
      ${!queue && !error && html`<p class="muted">Name a queue, or choose one in the table.</p>`}
      ${total != null && html`<div class="bar"><span class="muted">${count(total)} dead ${total === 1 ? "letter" : "letters"}, the oldest first</span>
        ${total > 0 && html`<${Action} needs="operator" onAct=${() => respawn(namespace, queue, done)}>Respawn …<//>
          <${Action} needs="operator" kind="danger" onAct=${() => removeDead(namespace, queue, done)}>Delete …<//>`}</div>`}
      ${total > 0 && classes && html`<${Classes} ...${classes} />`}
      <ol class="entries">${list.map((j) => html`<${OneJob} key=${j.job} j=${j} pretty=${pretty} onRemove=${() => remove(namespace, queue, j.job, done)} onTrace=${part !== "id" && (() => choose({ part: "id", id: j.job }))} />`)}</ol>
      ${part === "id" && queue && job && html`<${Trace} key=${job} namespace=${namespace} queue=${queue} job=${job} />`}
      ${total > list.length && list.length > 0 && html`<button type="button" onClick=${() => this.ask(true)}>Show more</button>`}`;
  }
}

// Dead letters of PHP's by the class that PHP runs, the most of one first.
const Classes = ({ of, in: counted }) => html`<table class="classes"><caption>By class, of the newest ${count(counted)}</caption>
  <tbody>${Object.entries(of).sort(([a, n], [b, m]) => m - n || (a < b ? -1 : 1)).map(([name, n]) => html`<tr key=${name}><th scope="row"><${Text} of=${name} /></th><td class="n">${count(n)}</td></tr>`)}</tbody></table>`;

const until = { delayed: "until", leased: "until", dead: "since" };
const deaths = { nacked: "nacked at its last try", lapsed: "its last lease lapsed", buried: "buried", unfit: "only PHP's own code can run it", unreadable: "PHP could not read it" };

function OneJob({ j, pretty, onRemove, onTrace }) {
  return html`<li class="entry">
    <p class="meta"><b class=${j.state === "dead" ? "bad-text" : ""}>${j.state}${until[j.state] ? ` ${until[j.state]} ${time(j.at_ms)}` : ""}${j.reason ? `, ${deaths[j.reason] ?? visible(j.reason)}` : ""}</b> ${j.class && html`<span>class <b>${visible(j.class)}</b></span> `}<span>id <b>${visible(j.job)}</b></span>
      <span>${j.attempt == null ? `tries: ${count(j.tries)}` : `attempt ${count(j.attempt)} of ${count(j.tries)}`}</span> <span>published ${time(j.published_at_ms)}, ${duration(j.age_ms)} ago</span>
      ${j.state !== "dead" && html`<span>${j.expires_at_ms ? `expires ${time(j.expires_at_ms)}` : "never expires"}</span> `}<span>${bytes(j.bytes)}</span></p>
    ${j.attributes && html`<p class="detail">${visible(JSON.stringify(j.attributes))}</p>`}
    ${j.errors?.map((e) => html`<p class="detail" key=${e.at_ms}>attempt ${count(e.attempt)}, ${time(e.at_ms)}: ${visible(e.error)}</p>`)}
    <${Payload} of=${j} pretty=${pretty} />
    <p class="acts">${onTrace && html`<button type="button" class="action" onClick=${onTrace}>what happened</button>`}<${Action} needs="operator" kind="danger" onAct=${onRemove}>delete<//></p>
  </li>`;
}
