// Why was my event dropped? A sample of the drops of each reason, found by id.

import { get } from "../api.js";
import { count, duration, time, visible } from "../format.js";
import { state } from "../state.js";
import { Component, html } from "../ui.js";
import { Where } from "./where.js";

const reasons = {
  evicted: "its partition was full, and newer entries took its place",
  expired: "it waited longer than max_age",
  stale: "it was older than max_age when it came",
  dead: "the sink rejected it for good; it is among the dead letters",
  failed: "delivery is at-most-once: it counts as delivered, and then its sink did not take it",
  lost: "something other than Spillway removed it from Redis",
  purged: "an operator purged it",
  too_large: "it is larger than an entry may be",
  bad_ts: "its time is none, or lies in the future",
  bad_id: "its id is not allowed",
  bad_partition: "its partition’s name is not allowed",
  bad_item: "it is no entry",
  filtered: "the namespace’s transform drops such entries",
  sampled: "the namespace’s transform keeps a share of such entries",
  emptied: "the namespace’s transform left nothing of it",
  unreadable: "it is no JSON, so nobody can tell what the namespace’s transform has to take out",
  too_many_keys: "its namespace remembers as many idempotency keys as max_keys allows",
  too_many_partitions: "its request names too many partitions",
  rate_limited: "its sender sends more than it may",
  store_unavailable: "the store could not be reached; the sender was told to try again",
  store_full: "the store is out of memory; the sender was told to try again",
  unknown: "the store gave no answer: it may be stored or not",
  bad_request: "its request could not be read",
  unauthorized: "its sender has no valid token",
  overloaded: "the server had too much to do; the sender was told to try again",
  shutting_down: "the server was stopping; the sender was told to try again",
  client_discarded: "the client library gave it up before it was sent",
};

export class Drops extends Component {
  state = { id: "", reason: "", answer: null, error: "" };

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
    const { namespace, partition } = this.props.drawer;
    const asked = (this.asked = {});
    let change;
    try {
      change = { answer: await get("drops", { namespace, partition, reason: this.state.reason, id: this.state.id, limit: 200 }), error: "" };
    } catch (err) {
      change = { error: err.message };
    }
    if (!this.gone && this.asked === asked) this.setState(change);
  }

  choose(reason) {
    this.setState({ reason: this.state.reason === reason ? "" : reason }, () => this.ask());
  }

  render({ drawer, names }, { id, reason, answer, error }) {
    return html`<form class="bar" onSubmit=${(e) => { e.preventDefault(); this.ask(); }}>
        <label class="field wide"><span>Id of the event</span><input type="search" value=${id} spellcheck=${false} autocomplete="off"
          onInput=${(e) => this.setState({ id: e.target.value.trim() })} /></label>
        <button type="submit" class="primary">Look for it</button>
        <${Where} drawer=${drawer} names=${names} all="all" />
      </form>
      ${error && html`<p class="rejected" role="alert">${error}</p>`}
      ${answer && html`<div class="reasons" role="group" aria-label="Reasons since this process started">${Object.entries(answer.reasons ?? {}).sort((a, b) => b[1].total - a[1].total).map(([r, n]) => html`
        <button type="button" aria-pressed=${String(reason === r)} onClick=${() => this.choose(r)}>${visible(r)} <b>${count(n.total)}</b></button>`)}</div>
      <${Found} drops=${answer.drops ?? []} id=${id} />`}`;
  }
}

function Found({ drops, id }) {
  if (!drops.length) {
    return html`<p class="muted">${id ? "No sample has this id. That proves nothing: of each namespace and reason the last 128 are kept, since this process started, and few of evicted entries have an id. Look for its partition, too."
      : "No sample: nothing like it was dropped since this process started."}</p>`;
  }
  const now = state.overview.now_ms;
  return html`<ol class="entries">${drops.map((d, i) => html`<li class="entry" key=${d.at_ms + " " + i}>
    <p class="meta"><b class="bad-text">${visible(d.reason)}</b> <span>${time(d.at_ms)}, ${duration(now - d.at_ms)} ago</span>
      <span>${visible(d.namespace)}/<b>${visible(d.partition)}</b></span> ${d.id && html`<span>id <b>${visible(d.id)}</b></span>`}
      ${d.age_ms != null && html`<span>${duration(d.age_ms)} old</span>`} ${d.entries > 1 && html`<span>with ${count(d.entries - 1)} more</span>`}</p>
    <p>${reasons[d.reason] ? "Because " + reasons[d.reason] + "." : ""} ${d.detail && html`<span class="muted">${visible(d.detail)}</span>`}</p></li>`)}</ol>`;
}
