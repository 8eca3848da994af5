// What a page needs, with a browser's parts faked: node --test
import assert from "node:assert/strict"
import { execFile } from "node:child_process"
import { createServer } from "node:http"
import { after, test } from "node:test"
import { Reporter } from "./reporter.js"

// The process would send what they hold before it ends.
const clients = []
class Closed extends Reporter {
  constructor(...options) {
    super(...options)
    clients.push(this)
  }
}
after(() => { for (const c of clients) c.close(0) })

const never = () => new Promise(() => {})

function browser(t, accepts, fits = () => true) {
  const beacons = []
  const before = Object.getOwnPropertyDescriptor(globalThis, "navigator")
  Object.defineProperty(globalThis, "navigator", {
    configurable: true, value: { sendBeacon: (url, body) => accepts > beacons.length && fits(body) && beacons.push({ url, body }) > 0 },
  })
  t.after(() => before ? Object.defineProperty(globalThis, "navigator", before) : delete globalThis.navigator)
  return beacons
}

class Memory {
  slots = new Map()
  getItem(k) { return this.slots.get(k) ?? null }
  setItem(k, v) { this.slots.set(k, v) }
  removeItem(k) { this.slots.delete(k) }
}

test("a hidden page gives what waits to beacons of at most 60 KiB", async t => {
  const beacons = browser(t, 100)
  const c = new Closed("http://127.0.0.1:1", { namespace: "kart", token: "a&b", linger: 1e6, queue: 1000, batch: 1000, fetch: never })
  for (let i = 0; i < 300; i++) c.report("p", { i, text: "x".repeat(200) }, { id: "id" + i })
  c.hand()
  assert.ok(beacons.length > 1)
  const lines = beacons.flatMap(b => JSON.parse(b.body))
  assert.deepEqual(lines.map(l => l.data.i), [...Array(300).keys()])
  assert.equal(lines[7].partition, "p")
  assert.equal(lines[7].id, "id7")
  for (const b of beacons) {
    assert.equal(b.url, "http://127.0.0.1:1/beacon/kart?k=a%26b")
    assert.ok(b.body.length <= 60 << 10)
  }
  assert.deepEqual(c.stats(), { reported: 300, acked: 0, handed: 300, pending: 0, dropped: {} })
  assert.equal(await c.close(10), true)
})

test("a browser that has little room left gets smaller beacons", async t => {
  let room = 20 << 10
  const beacons = browser(t, 100, body => (room -= body.length) >= 0 || !(room += body.length))
  const c = new Closed("http://127.0.0.1:1", { linger: 1e6, queue: 1000, batch: 1000, fetch: never })
  c.report("p", new Uint8Array([255])) // no JSON: it cannot go by beacon, and holds up nobody
  for (let i = 0; i < 300; i++) c.report("p", new TextEncoder().encode(`{"i":${i},\n"text":"${"x".repeat(200)}"}`))
  c.hand()
  const sent = beacons.flatMap(b => JSON.parse(b.body)).map(e => e.data.i)
  assert.deepEqual(sent, [...Array(sent.length).keys()])
  assert.ok(sent.length > 40, `${sent.length} sent`)
  assert.deepEqual(c.stats(), { reported: 301, acked: 0, handed: sent.length, pending: 301 - sent.length, dropped: {} })
})

test("a request that waits to be tried again goes by beacon, an open one does not", async t => {
  const beacons = browser(t, 100)
  let calls = 0
  const answers = [{ status: 503, headers: new Headers({ "Retry-After": "1" }), text: async () => "{}" }]
  const c = new Closed("http://127.0.0.1:1", { linger: 0, batch: 1, inFlight: 2, breakAfter: 100, fetch: () => { calls++; return answers.shift() ?? never() } })
  c.report("p", 1)
  await new Promise(setImmediate) // the answer is read
  c.report("q", 2)
  c.hand()
  assert.deepEqual(beacons.flatMap(b => JSON.parse(b.body)).map(e => e.data), [1])
  assert.deepEqual(c.stats(), { reported: 2, acked: 0, handed: 1, pending: 1, dropped: {} })
})

test("what the browser does not take is kept for the next page, once", async t => {
  browser(t, 0)
  const storage = new Memory()
  const options = { linger: 1e6, storage, fetch: never }
  const c = new Closed("http://127.0.0.1:1", options)
  c.report("p", { n: 1 })
  c.report("q", { n: 2 }, { id: "two" })
  c.hand()
  const next = new Closed("http://127.0.0.1:1", options)
  assert.equal(next.stats().pending, 2)
  assert.equal(new Closed("http://127.0.0.1:1", options).stats().pending, 0)
})

test("a page that returns sends what it kept, and no other page does", async t => {
  browser(t, 0)
  const storage = new Memory(), listeners = {}, hidden = { visibilityState: "visible", addEventListener: (type, f) => listeners[type] = f }
  globalThis.document = hidden
  t.after(() => delete globalThis.document)
  const c = new Closed("http://127.0.0.1:1", { linger: 1e6, storage, fetch: never })
  c.report("p", { n: 1 })
  hidden.visibilityState = "hidden"
  listeners.visibilitychange({ type: "visibilitychange" })
  for (const type of ["pagehide", "visibilitychange"]) { // as a browser does, in this order
    listeners.visibilitychange({ type })
    assert.ok(storage.getItem("spillway:default"), type)
  }
  hidden.visibilityState = "visible"
  listeners.visibilitychange({ type: "pageshow" })
  listeners.visibilitychange({ type: "visibilitychange" })
  assert.equal(storage.getItem("spillway:default"), null)
  assert.equal(c.stats().pending, 1)
  storage.setItem("spillway:default", "of another page")
  listeners.visibilitychange({ type: "visibilitychange" })
  assert.equal(storage.getItem("spillway:default"), "of another page")
})

// A tab that another one covers is hidden, and lives on.
test("what one page kept and another took is sent once", async t => {
  browser(t, 0)
  const storage = new Memory(), sent = []
  const options = { linger: 1e6, storage, compressFrom: -1, fetch: async (_, { body }) => {
    sent.push(...JSON.parse(body).map(e => e.data))
    return { status: 204, headers: new Headers(), text: async () => "" }
  } }
  const hidden = new Closed("http://127.0.0.1:1", options)
  hidden.report("p", "kept")
  hidden.hand()
  const other = new Closed("http://127.0.0.1:1", options)
  hidden.report("p", "later")
  assert.equal(await hidden.flush(1000), true)
  assert.equal(await other.flush(1000), true)
  assert.deepEqual(sent.sort(), ["kept", "later"])
  assert.deepEqual(hidden.stats(), { reported: 2, acked: 1, handed: 1, pending: 0, dropped: {} })
  assert.deepEqual(other.stats(), { reported: 1, acked: 1, handed: 0, pending: 0, dropped: {} })
  for (const c of [hidden, other]) assert.equal(await c.close(10), true)
})

test("pages that are hidden together keep theirs beside each other's", async t => {
  browser(t, 0)
  const storage = new Memory()
  const options = { linger: 1e6, storage, fetch: (_, { signal }) => new Promise((_, fail) => signal.addEventListener("abort", fail)) }
  const pages = ["a", "b", "c"].map(name => {
    const c = new Closed("http://127.0.0.1:1", options)
    c.report("p", name)
    return c
  })
  for (const c of pages) c.hand()
  const kept = () => JSON.parse(storage.getItem("spillway:default") ?? "[]").map(e => e[1])
  assert.deepEqual(kept(), ['"a"', '"b"', '"c"'])
  await pages[1].close(0) // what it drops is not kept
  assert.deepEqual(kept(), ['"a"', '"c"'])
  assert.equal(new Closed("http://127.0.0.1:1", options).stats().pending, 2)
  for (const c of [pages[0], pages[2]]) {
    c.hand()
    assert.equal(c.stats().handed, 1)
  }
})

test("a hidden page that sends keeps the rest", async t => {
  browser(t, 0)
  const storage = new Memory()
  let answer
  const c = new Closed("http://127.0.0.1:1", { linger: 1e6, batch: 1, inFlight: 1, storage, fetch: () => new Promise(resolve => answer = resolve) })
  const kept = () => JSON.parse(storage.getItem("spillway:default")).map(e => e[1])
  for (const n of [1, 2, 3]) c.report("p", n)
  c.hand()
  assert.deepEqual(kept(), ["2", "3"])
  answer({ status: 204, headers: new Headers(), text: async () => "" })
  await new Promise(setImmediate)
  assert.deepEqual(kept(), ["3"])
  answer({ status: 503, headers: new Headers({ "Retry-After": "1" }), text: async () => "" })
  await new Promise(setImmediate)
  assert.deepEqual(kept(), ["2", "3"])
})

test("what goes by beacon ends a flush", async t => {
  browser(t, 100)
  const c = new Closed("http://127.0.0.1:1", { linger: 1e6, inFlight: 1, fetch: async () => ({ status: 503, headers: new Headers({ "Retry-After": "1" }), text: async () => "{}" }) })
  c.report("p", 1)
  const done = c.flush(10000)
  await new Promise(setImmediate)
  c.hand()
  assert.equal(await done, true)
  assert.equal(c.stats().handed, 1)
})

test("a store is bounded, and damage in it harms nobody", async t => {
  browser(t, 0)
  const storage = new Memory()
  const c = new Closed("http://127.0.0.1:1", { linger: 1e6, storage, storageBytes: 5000, batch: 1000, fetch: never })
  for (let i = 0; i < 100; i++) c.report("p", { i })
  c.hand()
  const kept = JSON.parse(storage.getItem("spillway:default"))
  assert.ok(kept.length > 5 && kept.length < 20)
  assert.equal(kept.at(-1)[1], '{"i":99}')
  for (const text of ["{", "7", "null", '[["p"]]', '[["a b","1",9e15,""]]', '[["p","{",9e15,""]]']) {
    storage.setItem("spillway:default", text)
    assert.equal(new Closed("http://127.0.0.1:1", { storage, fetch: never }).stats().pending, 0, text)
  }
})

test("values and options that cannot work are rejected and counted", () => {
  const c = new Closed("http://127.0.0.1:1", { linger: 1e6, maxEntry: 20, fetch: never })
  const circle = {}
  circle.self = circle
  for (const [partition, value, entry] of [
    ["p", undefined], ["p", circle], ["p", 1n], ["a b", 1], ["", 1], ["p", 1, { id: "a b" }], ["p", new Uint8Array()], ["p", 1, { at: NaN }], ["p", 1, { at: Infinity }], ["p", 1, { at: 1e15 }],
  ]) assert.equal(c.report(partition, value, entry), false)
  assert.equal(c.report("p", "x".repeat(30)), false)
  assert.deepEqual(c.stats().dropped, { invalid: 10, too_large: 1 })
  for (const [url, options] of [["x", {}], ["ftp://h", {}], ["http://u:p@h", {}], ["http://h?x", {}], ["http://h", { btach: 1 }], ["http://h", { batch: 0 }], ["http://h", { namespace: "a b" }]])
    assert.throws(() => new Closed(url, options))
})

test("callbacks hear of drops and errors, and their faults are their own", async () => {
  const heard = []
  const c = new Closed("http://127.0.0.1:1", {
    linger: 1, attempts: 1, fetch: async () => ({ status: 401, headers: new Headers(), text: async () => '{"error":"unauthorized"}' }),
    onDrop: (why, n) => heard.push([why, n]), onError: e => { heard.push(e.message); throw new Error("mine") },
  })
  c.report("p", 1)
  assert.equal(await c.flush(5000), true)
  await c.close(1000)
  assert.deepEqual(heard, [["rejected", 1], 'spillway: the service answered 401 {"error":"unauthorized"}'])
})

// run runs a program that reports to a service which answers every request so, and returns what was stored and printed.
async function run(t, program, answer) {
  const stored = []
  const web = createServer(async (request, response) => {
    let body = ""
    for await (const piece of request) body += piece
    const { status, text } = answer(request)
    if (status === 200) stored.push(...JSON.parse(body).map(e => e.data))
    response.writeHead(status, { "Content-Type": "application/json" }).end(text)
  })
  await new Promise(resolve => web.listen(0, "127.0.0.1", resolve))
  t.after(() => web.close())
  const source = `import { Reporter } from ${JSON.stringify(new URL("./reporter.js", import.meta.url).href)}
    const open = options => new Reporter("http://127.0.0.1:${web.address().port}", { compressFrom: -1, backoffMax: 1, backoffBase: 1, ...options })
    ${program}`
  const [code, printed] = await new Promise(resolve =>
    execFile(process.execPath, ["--input-type=module", "-e", source], (error, stdout, stderr) => resolve([error?.code ?? 0, stdout + stderr])))
  return { stored, printed, code }
}

test("a program that ends sends what waits, also of several clients and what is reported last", async t => {
  const { stored, printed, code } = await run(t, `
    const c = open({ linger: 1e6 }), other = open({ linger: 1e6 }), idle = open()
    for (let i = 0; i < 300; i++) c.report("p", i)
    other.report("q", "other")
    let told = false
    process.on("beforeExit", () => { if (!told) c.report("p", "last"); told = true })
    process.on("exit", () => console.log(JSON.stringify([c.stats(), other.stats().acked, idle.stats().reported])))
  `, () => ({ status: 200, text: '{"accepted":0}' }))
  assert.deepEqual(stored.filter(n => n !== "other"), [...Array(300).keys(), "last"])
  assert.ok(stored.includes("other"))
  assert.deepEqual(JSON.parse(printed), [{ reported: 301, acked: 301, handed: 0, pending: 0, dropped: {} }, 1, 0])
  assert.equal(code, 0)
})

test("a program that ends is told what could not be sent", async t => {
  const { printed, code } = await run(t, `
    const c = open({ linger: 1e6, onDrop: (why, n) => console.log(why, n), onError() { } })
    for (let i = 0; i < 5; i++) c.report("p", i)
  `, () => ({ status: 500, text: "{}" }))
  assert.equal(printed, "retries_exhausted 5\n")
  assert.equal(code, 0)
})

test("no answer kills a program", async t => {
  const texts = ['{"accepted":1,"results":[null]}', '{"accepted":1,"results":7}', "null", "[]", "{"]
  const { printed, code } = await run(t, `
    const c = open({ linger: 1, attempts: 3, onError: e => console.log(e.message) })
    c.report("p", 1)
    console.log(await c.flush(), c.stats().dropped)
  `, () => ({ status: 200, text: texts.shift() }))
  assert.match(printed, /true { retries_exhausted: 1 }/)
  assert.equal(code, 0)
})
