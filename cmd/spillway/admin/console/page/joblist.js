// The jobs of a queue that are in one state, page by page.

import { get, path } from "./api.js";
import { Causes } from "./causes.js";
import { bytes, count, duration, fromNow, visible } from "./format.js";
import { attemptOf, reasons, Progress, waits } from "./job.js";
import { removeDead, respawn } from "./jobacts.js";
import { poll } from "./live.js";
import { forbidden, openQueue, state } from "./state.js";
import { Action, Component, html, Text } from "./ui.js";

const pageRows = 25; // a phone shows them on four screens
const askEvery = 5000; // milliseconds

export class JobList extends Component {
  state = { pages: [""], jobs: null, next: "", causes: null, chosen: {}, error: "" };

  componentDidMount() {
    this.leave = poll(() => Date.now() - this.askedAt >= askEvery && !this.anyChosen() && this.ask());
    this.ask();
    this.askCauses();
  }

  componentWillUnmount() {
    this.leave();
    this.asked?.abort();
  }

  anyChosen() {
    return Object.keys(this.state.chosen).length > 0;
  }

  show(pages) {
    this.setState({ pages, chosen: {} }, () => this.ask());
  }

  async ask() {
    this.askedAt = Date.now();
    const why = forbidden("operator");
    if (why) return this.setState({ error: `The jobs themselves: ${why}` });
    this.asked?.abort();
    const asked = (this.asked = new AbortController());
    try {
      this.setState({ ...(await this.page(this.state.pages.at(-1), asked.signal)), error: "" });
    } catch (err) {
      if (err.name !== "AbortError") this.setState({ error: err.message, ...(err.code === "no_such_job" && { jobs: [], error: "" }) });
    }
  }

  // Counting them takes a while, so it is done once, and after each act.
  async askCauses() {
    const { namespace, queue, part } = this.props;
    if (part !== "dead" || forbidden("operator")) return;
    try {
      this.setState({ causes: await get(path("namespaces", namespace, "queues", queue, "dead"), { by: "cause" }) });
    } catch {} // the list says what is wrong
  }

  async page(after, signal) {
    const { namespace, queue, part, php } = this.props;
    const route = path("namespaces", namespace, "queues", queue);
    if (!php) {
      const { jobs, next } = await get(route + "/jobs", { state: part, limit: pageRows, after }, { signal, exact: true });
      return { jobs, next };
    }
    if (part === "ready") return { jobs: [listed(await get(route + "/peek", {}, { signal }))], next: "" };
    const offset = Number(after);
    const answer = await get(route + "/dead", { limit: pageRows, offset }, { signal });
    const to = offset + answer.jobs.length;
    return { jobs: answer.jobs.map(listed), next: to < answer.total ? String(to) : "" };
  }

  choose(ids, yes) {
    this.setState((before) => {
      const chosen = { ...before.chosen };
      for (const id of ids) yes ? (chosen[id] = true) : delete chosen[id];
      return { chosen };
    });
  }

  render({ namespace, queue, part, php, done }, { pages, jobs, next, causes, chosen, error }) {
    const dead = part === "dead" && !forbidden("operator");
    const ids = Object.keys(chosen);
    const again = () => this.setState({ chosen: {} }, () => { this.ask(); this.askCauses(); done(); });
    const some = ids.length > 0 ? ` ${count(ids.length)}` : "";
    return html`${error && html`<p class="rejected" role="alert">${error}</p>`}
      ${causes?.looked > 0 && html`<${Causes} of=${causes} />`}
      ${!jobs && !error && html`<p class="muted">Asking the server …</p>`}
      ${jobs?.length === 0 && html`<p class="muted">${next ? "None on this page; there are more." : `No job is ${part}.`}</p>`}
      ${dead && jobs?.length > 0 && html`<div class="bar"><${Action} onAct=${() => respawn(namespace, queue, again, ids, php)}>Respawn${some} …<//>
        <${Action} kind="danger" onAct=${() => removeDead(namespace, queue, again, ids, php)}>Delete${some} …<//><span class="muted">${some ? "" : "the oldest first, or those that you choose"}</span></div>`}
      ${jobs?.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Table of jobs"><table class="job-list">
        <thead><tr><th scope="col">${dead && html`<input type="checkbox" aria-label="Choose all of this page" checked=${jobs.every((j) => chosen[j.id])} onChange=${(e) => this.choose(jobs.map((j) => j.id), e.target.checked)} />`}job</th>
          <th scope="col">${heads[part]}</th><th scope="col">${waits(part) ? "next attempt" : "attempt"}</th><th scope="col" class="n">size</th><th scope="col">published</th></tr></thead>
        <tbody>${jobs.map((j) => html`<${Row} key=${j.id} j=${j} part=${part} open=${() => openQueue(namespace, queue, part, j.id)}
          chosen=${dead ? Boolean(chosen[j.id]) : null} onChoose=${(yes) => this.choose([j.id], yes)} />`)}</tbody></table></div>`}
      ${(pages.length > 1 || next) && html`<nav class="bar pages" aria-label="Pages of jobs">
        <button type="button" disabled=${pages.length === 1} onClick=${() => this.show(pages.slice(0, -1))}>← before</button>
        <span class="muted">page ${count(pages.length)}</span>
        <button type="button" disabled=${!next} onClick=${() => this.show([...pages, next])}>next →</button></nav>`}`;
  }
}

const heads = { ready: "last error", delayed: "due", leased: "lease", dead: "why", acked: "result" };

// A job of PHP's, which comes whole, as a row has it.
const listed = (j) => ({ ...j, id: j.job, published_ms: j.published_at_ms, died_ms: j.at_ms, error: j.errors?.[0]?.error });

function Row({ j, part, open, chosen, onChoose }) {
  const now = state.overview.now_ms;
  return html`<tr class=${chosen ? "selected" : ""}>
    <th scope="row">${chosen != null && html`<input type="checkbox" aria-label=${"Choose " + visible(j.id)} checked=${chosen} onChange=${(e) => onChoose(e.target.checked)} />`}
      <button type="button" class="link" aria-label=${"Job " + visible(j.id)} onClick=${open}><${Text} of=${j.id} cut=${40} /></button></th>
    <td class="said">${part === "delayed" && (j.reason ? reasons[j.reason] : fromNow(j.due_ms, now))}${part === "leased" && html`${j.deferred ? "deferred, ends " : "ends "}${fromNow(j.deadline_ms, now)} `}<${Progress} of=${j} />
      ${part === "dead" && html`<b class="bad-text">${reasons[j.reason] ?? "dead"}</b>, ${fromNow(Math.min(j.died_ms, now - 1), now)}${j.error && ": "}`}${part === "acked" && `${fromNow(Math.min(j.acked_ms, now - 1), now)}${j.result === undefined ? "" : ": "}`}${j.result !== undefined && html`<${Text} of=${JSON.stringify(j.result)} cut=${120} />`}${j.error && html`<${Text} of=${j.error} cut=${120} />`}</td>
    <td>${attemptOf(j, part)}</td><td class="n">${bytes(j.bytes)}</td><td>${duration(now - j.published_ms)} ago</td></tr>`;
}
