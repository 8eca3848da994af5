// Six figures and how they came about in the last two minutes that the page is open.

import { count, duration, latency, rate, short, visible } from "./format.js";
import { dropped, gone, sums, tail } from "./history.js";
import { chosen } from "./state.js";
import { html } from "./ui.js";

export function Tiles() {
  const namespaces = chosen();
  const total = sums(namespaces);
  const oldest = nearestLimit(namespaces);
  const share = oldest ? oldest.oldest_age_ms / oldest.max_age_ms : 0;
  const slowest = namespaces.flatMap((n) => n.sinks).filter((s) => s.p99_ms != null).sort((a, b) => b.p99_ms - a.p99_ms)[0];
  const partitions = namespaces.reduce((sum, n) => sum + n.partitions, 0);
  const lostSeries = tail("evicted").map((_, i) => ["evicted", "expired", "dead", "lost"].reduce((sum, r) => sum + (tail(r)[i] ?? 0), 0));
  return html`<section class="tiles" aria-label="Figures now">
    <${Tile} name="accepted" value=${rate(total.accepted)} unit="/s" line=${tail("accepted")}>${total.rejected > 0 ? html`<b class="warn-text">${rate(total.rejected)}/s rejected</b>` : total.rejected == null ? "rejections not known" : "none rejected"}<//>
    <${Tile} name="delivered" value=${rate(total.delivered)} unit="/s" line=${tail("delivered")}>${balance(total)}<//>
    <${Tile} name="backlog" value=${short(total.buffered)} line=${tail("buffered")}>in ${count(partitions)} ${partitions === 1 ? "partition" : "partitions"}<//>
    <${Tile} name="oldest entry" value=${duration(oldest?.oldest_age_ms)} line=${tail("oldest_age_ms")}>
      ${oldest ? html`of ${duration(oldest.max_age_ms)}${namespaces.length > 1 ? ` in ${visible(oldest.namespace)}` : ""}
        <meter min="0" max="1" value=${Math.min(1, share)} aria-label="Age of the oldest entry against the limit"></meter>` : total.buffered == null ? "not known" : "nothing waits"}<//>
    <${Tile} name="dropped" value=${rate(dropped(total))} unit="/s" line=${lostSeries} kind=${gone(total) > 0 ? "bad" : dropped(total) > 0 ? "warn" : ""}>${byReason(total)}<//>
    <${Tile} name="sink p99" value=${latency(slowest?.p99_ms)} line=${tail("sink_p99_ms")}>${slowest ? visible(slowest.label).slice(0, 60) : "no writes lately"}<//>
  </section>`;
}

function nearestLimit(namespaces) {
  const share = (n) => n.oldest_age_ms / n.max_age_ms;
  return namespaces.filter((n) => n.oldest_age_ms != null && n.max_age_ms > 0).sort((a, b) => share(b) - share(a))[0];
}

function balance(total) {
  if (total.accepted == null) return "not known";
  const difference = total.accepted - total.delivered - dropped(total);
  if (Math.abs(difference) < Math.max(1, 0.02 * total.accepted)) return "keeps up";
  return difference > 0 ? `backlog grows by ${rate(difference)}/s` : `backlog shrinks by ${rate(-difference)}/s`;
}

function byReason(total) {
  if (dropped(total) == null) return "not known";
  const parts = [["evicted", "evicted"], ["expired", "expired"], ["dead", "kept as dead letters"], ["lost", "lost"]].filter(([r]) => total[r] > 0);
  return parts.length ? parts.map(([r, word]) => `${word} ${rate(total[r])}`).join(" · ") : "nothing";
}

function Tile({ name, value, unit = "", line, kind = "", children }) {
  return html`<div class=${"tile " + kind}>
    <h2>${name}</h2>
    <p class="value">${value}<small>${unit}</small></p>
    <p class="sub">${children}</p>
    <${Sparkline} points=${line} />
  </div>`;
}

const width = 120, height = 28;

function Sparkline({ points }) {
  if (points.length < 2) return html`<svg class="spark" viewBox="0 0 ${width} ${height}" aria-hidden="true"></svg>`;
  const top = Math.max(...points.map((p) => p ?? 0)) || 1;
  const at = (p, i) => `${((i / (points.length - 1)) * width).toFixed(1)},${(height - 1 - (p / top) * (height - 3)).toFixed(1)}`;
  const drawn = points.map((p, i) => (p == null ? null : at(p, i))).filter(Boolean);
  return html`<svg class="spark" viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" aria-hidden="true">
    <polyline points=${drawn.join(" ")} vector-effect="non-scaling-stroke" /></svg>`;
}
