// The admin API of this origin. A rejection comes with the server's words.

/** Why a call failed. code is that of the server, or "unreachable". */
export class Rejection extends Error {
  constructor(message, code = "", status = 0) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

const patience = 15_000; // milliseconds; an answer takes some, a sweep of 100,000 partitions a second
const actPatience = 120_000; // milliseconds; a purge or a replay takes 90 s at most

const root = new URL("api/v1/", document.baseURI);
root.username = root.password = ""; // of an address with a token in it; fetch rejects those, and sends the token anyway

function address(path, query = {}) {
  const url = new URL(path, root);
  for (const [key, value] of Object.entries(query)) {
    if (value !== "" && value != null && value !== false) url.searchParams.set(key, value === true ? 1 : value);
  }
  return url;
}

/** A path of names, each of which may hold any character. */
export const path = (...names) => names.map(encodeURIComponent).join("/");

// Numbers that a double cannot hold stay as they were written, where the browser can do so.
export function exactly(_key, value, context) {
  const source = context?.source;
  if (typeof value === "number" && source !== undefined && String(value) !== source && JSON.rawJSON) return JSON.rawJSON(source);
  return value;
}

async function answer(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (err) {
    if (options.signal?.aborted && err.name === "AbortError") throw err;
    throw new Rejection(err.name === "TimeoutError" ? `no answer within ${(options.method ? actPatience : patience) / 1000} s` : "the server cannot be reached", "unreachable");
  }
  if (response.ok) return response;
  const said = await response.json().catch(() => ({}));
  const wait = response.headers.get("Retry-After");
  let message = said.message || `the server answers ${response.status}`;
  if (response.status === 401) message = "your token is not accepted (any more): load the page again to log in";
  if (wait) message += `; try again in ${wait} s`;
  throw new Rejection(message, said.error || "", response.status);
}

const within = (signal) => (signal ? AbortSignal.any([signal, AbortSignal.timeout(patience)]) : AbortSignal.timeout(patience));

/** Reads one answer. exact keeps numbers of payloads as written. */
export async function get(path, query, { signal, exact } = {}) {
  const response = await answer(address(path, query), { signal: within(signal), headers: { Accept: "application/json" } });
  return JSON.parse(await response.text(), exact ? exactly : undefined);
}

/** Sends a write. */
export async function post(path, body = {}) {
  const response = await answer(address(path), {
    method: "POST", signal: AbortSignal.timeout(actPatience), headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  return response.json();
}

/** Yields the objects of an answer of lines, as they come. */
export async function* lines(path, query, signal) {
  const response = await answer(address(path, query), { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const line of parts) {
      if (line !== "") yield JSON.parse(line, exactly);
    }
  }
}
