// New entries as they come, sampled. A hidden page lets go of its tail.

import { lines, path } from "../api.js";
import { forbidden } from "../state.js";
import { Choice, Component, html } from "../ui.js";
import { Entry, PayloadChoices } from "./payload.js";
import { namespaceOf, Where } from "./where.js";

const kept = 100; // entries on the page

export class Tail extends Component {
  state = { entries: [], running: false, perSecond: 5, pretty: false, unmasked: false, said: "", error: "" };
  count = 0;

  componentDidMount() {
    this.visible = () => {
      if (document.hidden) this.stop("stopped while the page was hidden");
      else if (this.wanted) this.start();
    };
    document.addEventListener("visibilitychange", this.visible);
    this.start();
  }

  componentDidUpdate(before) {
    const { namespace, partition } = this.props.drawer;
    if (before.drawer.namespace !== namespace || before.drawer.partition !== partition) this.start();
  }

  componentWillUnmount() {
    document.removeEventListener("visibilitychange", this.visible);
    this.stop("");
  }

  stop(said) {
    this.reading?.abort();
    this.reading = null;
    this.setState({ running: false, said });
  }

  async start() {
    this.stop("");
    const why = forbidden("operator");
    if (why) return this.setState({ error: why });
    this.wanted = true;
    const { drawer, names } = this.props;
    const { perSecond, unmasked } = this.state;
    const reading = (this.reading = new AbortController());
    this.setState({ running: true, error: "", entries: [] });
    try {
      const query = { partition: drawer.partition, per_second: perSecond, unmasked };
      for await (const line of lines(path("namespaces", namespaceOf(drawer, names), "tail"), query, reading.signal)) {
        if (line.ended) this.setState({ said: "The server ended it " + line.ended });
        else this.setState(({ entries }) => ({ entries: [{ ...line, key: ++this.count }, ...entries].slice(0, kept) }));
      }
      if (this.reading === reading) this.setState({ running: false });
    } catch (err) {
      if (this.reading === reading) this.setState({ running: false, error: err.message });
    }
  }

  pause() {
    this.wanted = false;
    this.stop("stopped");
  }

  render({ drawer, names }, { entries, running, perSecond, pretty, unmasked, said, error }) {
    return html`<div class="bar"><${Where} drawer=${{ ...drawer, namespace: namespaceOf(drawer, names) }} names=${names} />
        <${Choice} name="persecond" label="At most" value=${perSecond} options=${[[1, "1/s"], [5, "5/s"], [20, "20/s"]]} onChoose=${(v) => this.setState({ perSecond: v }, () => this.start())} />
        <${PayloadChoices} pretty=${pretty} unmasked=${unmasked} onChange=${(to) => this.setState(to, () => "unmasked" in to && this.start())} />
        <button type="button" onClick=${() => (running ? this.pause() : this.start())}>${running ? "Stop" : "Start"}</button></div>
      ${error && html`<p class="rejected" role="alert">${error}</p>`}
      <p class="muted" role="status">${running ? (entries.length ? "Live: a sample of what comes in, newest first." : "Waiting for entries …") : said}</p>
      <ol class="entries">${entries.map((e) => html`<${Entry} key=${e.key} e=${e} pretty=${pretty} where=${e.partition} />`)}</ol>`;
  }
}
