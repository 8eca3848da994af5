// What the page knows, in one object, and what the reader chose, which is also in the address:
// a link shows another person the same.

const ranks = { viewer: 0, operator: 1, admin: 2 };

export const state = {
  info: null, // GET info
  overview: null, // GET overview, of all namespaces
  failing: null, // {message, since}: why the last poll failed
  pauses: [], // GET pauses
  notices: [], // [{id, kind, text}]
  confirm: null, // the open confirmation
  ...fromAddress(),
};

function fromAddress() {
  const chosen = new URLSearchParams(location.hash.slice(1));
  const text = (key, otherwise = "") => chosen.get(key) ?? otherwise;
  return {
    namespace: text("namespace"), // "" is all of them
    jobs: text("jobs"), // the namespace of kind queue whose queues are shown
    view: text("view", "queues"), // what is shown of it: queues, schedules or forecast
    schedules: { queue: text("queue"), owner: text("owner"), failing: text("failing") === "1" }, // those that are shown
    table: { namespace: text("of"), sort: text("sort", "trouble"), order: text("order", "desc") === "asc" ? "asc" : "desc", q: text("q"), paused: text("paused") === "1" },
    page: chosen.get("page") ? { namespace: text("at"), queue: text("page"), part: text("state", "ready"), job: text("job") } : null,
    drawer: chosen.has("show") ? { tab: text("show"), namespace: text("in"), partition: text("partition"), id: text("id") } : null,
  };
}

function toAddress() {
  const { namespace, jobs, view, schedules, table, page, drawer } = state;
  const chosen = new URLSearchParams();
  const keep = (key, value, otherwise = "") => { if (value && value !== otherwise) chosen.set(key, value); };
  keep("namespace", namespace);
  keep("jobs", jobs);
  keep("view", view, "queues");
  keep("queue", schedules.queue);
  keep("owner", schedules.owner);
  keep("failing", schedules.failing ? "1" : "");
  keep("of", table.namespace);
  keep("sort", table.sort, "trouble");
  keep("order", table.order, "desc");
  keep("q", table.q);
  keep("paused", table.paused ? "1" : "");
  if (page) {
    keep("at", page.namespace);
    keep("page", page.queue);
    keep("state", page.part, "ready");
    keep("job", page.job);
  }
  if (drawer) {
    keep("show", drawer.tab);
    keep("in", drawer.namespace);
    keep("partition", drawer.partition);
    keep("id", drawer.id);
  }
  const hash = chosen.size ? "#" + chosen : " ";
  if (hash.trim() !== location.hash) history.replaceState(null, "", hash.trim() || location.pathname + location.search);
}

const watchers = new Set();
let waiting = false;

/** Calls f after each change, once a frame at most. */
export function watch(f) {
  watchers.add(f);
  return () => watchers.delete(f);
}

/** Changes the state; what it shows follows with the next frame. */
export function set(change) {
  Object.assign(state, change);
  toAddress();
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    for (const f of watchers) f();
  });
}

addEventListener("hashchange", () => set(fromAddress()));

/** Changes what the table of partitions shows. */
export const setTable = (change) => set({ table: { ...state.table, ...change } });

/** Opens the drawer: tab is peek, tail, dead, drops, schedule or audit. For a schedule partition is its queue, and id its name. */
export function openDrawer(tab, namespace = "", partition = "", id = "") {
  set({ drawer: { tab, namespace, partition, id } });
}

/** Opens the page of a queue: its jobs that are in a state, or one of them. */
export function openQueue(namespace, queue, part = "ready", job = "") {
  set({ page: { namespace, queue, part, job }, drawer: null });
  scrollTo(0, 0);
}

/** Why the reader may not do what needs a role; "" when they may. */
export function forbidden(needs) {
  const role = state.info?.you.role ?? "viewer";
  return ranks[role] >= ranks[needs] ? "" : `this needs the role ${needs}; yours is ${role}`;
}

let lastNotice = 0;

/** Says something at the edge of the page. kind: info goes away by itself, bad stays. */
export function notice(text, kind = "bad") {
  const id = ++lastNotice;
  set({ notices: [...state.notices.filter((n) => n.text !== text), { id, kind, text }].slice(-4) });
  if (kind !== "bad") setTimeout(() => dismiss(id), 8000);
}

export const dismiss = (id) => set({ notices: state.notices.filter((n) => n.id !== id) });

/** The namespaces of the overview that the reader chose. */
export function chosen() {
  const all = state.overview?.namespaces ?? [];
  return state.namespace ? all.filter((n) => n.namespace === state.namespace) : all;
}
