// Figures and texts as people read them.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const oneDigit = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** 12,345; "–" for what is not known. */
export const count = (n) => (n == null ? "–" : grouped.format(n));

/** A figure for small places: 12,345 or 1.2 M. */
export function short(n) {
  if (n == null) return "–";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"]]) {
    if (Math.abs(n) >= size) return oneDigit.format(n / size) + " " + unit;
  }
  return Math.abs(n) < 10 && !Number.isInteger(n) ? oneDigit.format(n) : grouped.format(n);
}

/** Entries per second; a trickle is never shown as 0. */
export function rate(n) {
  if (n == null) return "–";
  if (n > 0 && n < 0.05) return "< 0.1";
  return n < 100 ? oneDigit.format(n) : short(n);
}

/** 850 ms, 12 s, 3 min 4 s, 2 h 5 min, 3 d 4 h. */
export function duration(ms) {
  if (ms == null) return "–";
  if (ms < 0) ms = 0;
  if (ms < 1000) return Math.round(ms) + " ms";
  const s = Math.floor(ms / 1000);
  if (s < 10) return oneDigit.format(Math.floor(ms / 100) / 10) + " s";
  if (s < 60) return s + " s";
  const parts = (big, bigUnit, small, smallUnit) => (small ? `${big} ${bigUnit} ${small} ${smallUnit}` : `${big} ${bigUnit}`);
  if (s < 3600) return parts(Math.floor(s / 60), "min", s % 60, "s");
  if (s < 86400) return parts(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return parts(Math.floor(s / 86400), "d", Math.floor((s % 86400) / 3600), "h");
}

/** A latency: 0.42 ms, 12 ms, 1.5 s. */
export function latency(ms) {
  if (ms == null) return "–";
  if (ms < 1) return ms.toFixed(2) + " ms";
  return ms < 10 ? oneDigit.format(ms) + " ms" : duration(ms);
}

export const percent = (f) => (f == null ? "–" : (f > 0 && f < 0.01 ? "< 1" : Math.floor(f * 100)) + " %");

/** 31 B, 4.0 KiB, 12 MiB. */
export function bytes(n) {
  if (n == null) return "–";
  for (const [size, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (n >= size) return oneDigit.format(n / size) + " " + unit;
  }
  return n + " B";
}

/** The local time of Unix milliseconds: 14:03:05, with the date when it is not today's. */
export function time(at) {
  if (at == null) return "–";
  const date = new Date(at);
  const clock = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? clock : date.toLocaleDateString("sv-SE") + " " + clock; // 2026-11-30
}

/** How long until a time that may be over: "in 3 h", "2 s ago". */
export const fromNow = (at, now) => (at >= now ? "in " + duration(at - now) : duration(now - at) + " ago");

/** "1 entry", "2 entries". */
export const entries = (n) => count(n) + (n === 1 ? " entry" : " entries");

/** A word as a shell takes it. */
export const quoted = (word) => (/^[\w.:@%+=,/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** Lists in prose: "a", "a and b", "a, b and c". */
export function listed(texts) {
  return texts.length < 2 ? texts.join("") : texts.slice(0, -1).join(", ") + " and " + texts.at(-1);
}

/** "cut at 2,000": the longest text the page shows; the server cuts payloads at as much. */
export const longest = 32 * 1024;

// What a reader cannot see, or what reorders the text around it: control characters but line
// feed and tab, formats such as bidi controls and zero-width spaces, lone surrogates, private use,
// line separators, fillers that are as wide as letters, and variation selectors.
const unseen = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\u2028\u2029\u034f\u115f\u1160\u3164\uffa0\ufe00-\ufe0f]/gu;

/** A text with all that cannot be seen written out, as ⟨U+202E⟩, and no longer than 32 KiB. */
export function visible(value) {
  const text = String(value ?? "");
  const cut = text.length > longest ? text.slice(0, longest) + "… (cut)" : text;
  return cut.replace(unseen, (c) =>
    c === "\n" || c === "\t" ? c : `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}
