// One job: what it holds, what became of its attempts, and what may be done with it.

import { get, path } from "./api.js";
import { Payload, PayloadChoices } from "./drawer/payload.js";
import { Trace } from "./drawer/trace.js";
import { bytes, count, duration, time, visible } from "./format.js";
import { promote, publish, remove, respawn } from "./jobacts.js";
import { poll } from "./live.js";
import { forbidden, openQueue, state } from "./state.js";
import { Action, Component, html, Text } from "./ui.js";

const askEvery = 2000; // milliseconds

const until = { delayed: "until", leased: "until", dead: "since", acked: "at" };
export const reasons = { nacked: "nacked at its last try", lapsed: "its last lease lapsed", buried: "buried", undecided: "nobody committed it", unfit: "only PHP's own code can run it", unreadable: "PHP could not read it", concurrency: "waits for a slot" };

/** The attempt that a job is at, or that is next where it waits, of its tries: those before a respawn count as used. */
export const waits = (state) => state === "ready" || state === "delayed" || state === "prepared";
export const attemptOf = (j, state) => (j.attempt == null ? "" : count(j.attempt + (waits(state) ? 1 : 0)) + " ") + `of ${count(j.tries)}`;

/** How far the attempt of a job got, where its worker says so. */
export const Progress = ({ of }) => of.progress != null && html`<span class="progress"><meter min="0" max="100" value=${of.progress} aria-label="Progress"></meter> ${of.progress} % ${of.note && html`<${Text} of=${of.note} cut=${200} />`}</span>`;

export class JobView extends Component {
  state = { j: null, pretty: true, unmasked: false, error: "" };

  componentDidMount() {
    this.leave = poll(() => Date.now() - this.askedAt >= askEvery && !this.state.error && this.ask());
    this.ask();
  }

  componentWillUnmount() {
    this.leave();
    this.gone = true;
  }

  async ask() {
    this.askedAt = Date.now();
    const why = forbidden("operator");
    if (why) return this.setState({ error: why });
    const asked = (this.asked = {});
    const { namespace, queue, job } = this.props;
    const { unmasked } = this.state;
    let change;
    try {
      change = { j: { ...(await get(path("namespaces", namespace, "queues", queue, "jobs", job), { unmasked }, { exact: true })), unmasked }, error: "" };
    } catch (err) {
      change = { j: null, error: err.message };
    }
    if (!this.gone && this.asked === asked) this.setState(change);
  }

  render({ namespace, queue, part, job, php }, { j, pretty, unmasked, error }) {
    const list = () => openQueue(namespace, queue, part);
    return html`<section class="job" aria-label="Job"><div class="bar"><button type="button" class="link" onClick=${list}>← jobs that are ${part}</button>
        <${PayloadChoices} pretty=${pretty} unmasked=${unmasked} onChange=${(to) => this.setState(to, () => !("pretty" in to) && this.ask())} /></div>
      <h3><${Text} of=${job} /></h3>
      ${error && html`<p class="rejected" role="alert">${error}</p>`}
      ${j && html`<${Known} j=${j} pretty=${pretty} /><p class="acts"><${Acts} j=${j} php=${php} namespace=${namespace} queue=${queue} again=${() => this.ask()} list=${list} /></p>`}
      <${Trace} namespace=${namespace} queue=${queue} job=${job} /></section>`;
  }
}

function Known({ j, pretty }) {
  return html`<div class="entry">
    <p class="meta"><b class=${j.state === "dead" ? "bad-text" : ""}>${j.state}${until[j.state] ? ` ${until[j.state]} ${time(j.at_ms)}` : ""}${j.reason ? `, ${reasons[j.reason] ?? visible(j.reason)}` : ""}</b> ${j.class && html`<span>class <b>${visible(j.class)}</b></span> `}
      <span>${j.attempt == null ? `tries: ${count(j.tries)}` : `${waits(j.state) ? "next attempt" : "attempt"} ${attemptOf(j, j.state)}`}</span> <span>published ${time(j.published_at_ms)}, ${duration(j.age_ms)} ago</span>
      ${j.state !== "dead" && j.state !== "acked" && html`<span>${j.expires_at_ms ? `expires ${time(j.expires_at_ms)}` : "never expires"}</span> `}<span>${bytes(j.bytes)}</span></p>
    <p><${Progress} of=${j} /></p>
    ${j.attributes && html`<p class="detail">${visible(JSON.stringify(j.attributes))}</p>`}
    ${j.errors?.map((e) => html`<p class="detail" key=${e.attempt}>attempt ${count(e.attempt)}, ${time(e.at_ms)}: ${visible(e.error)}</p>`)}
    ${j.result !== undefined && html`<p class="muted">Result</p><${Payload} of=${{ data: j.result }} pretty=${pretty} /><p class="muted">Payload</p>`}
    <${Payload} of=${j} pretty=${pretty} /></div>`;
}

function Acts({ j, php, namespace, queue, again, list }) {
  // What is masked would be published as it is shown.
  const whole = j.data !== undefined && (j.unmasked || !state.info.mask_fields?.length);
  return html`${j.state === "delayed" && !php && html`<${Action} onAct=${() => promote(namespace, queue, j.job, again)}>Promote …<//>`}
    ${j.state === "dead" && html`<${Action} onAct=${() => respawn(namespace, queue, again, [j.job])}>Respawn …<//>`}
    ${!php && whole && html`<${Action} onAct=${() => publish(namespace, queue, JSON.stringify(j.data), () => {})}>Publish a copy …<//>`}
    ${j.state !== "acked" && html`<${Action} kind="danger" onAct=${() => remove(namespace, queue, j.job, list)}>Delete …<//>`}
    ${!php && j.data !== undefined && !whole && html`<span class="muted">A copy has what is masked, so an admin publishes it, unmasked.</span>`}`;
}
