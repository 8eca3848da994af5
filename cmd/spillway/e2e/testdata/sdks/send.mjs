// Sends events with one unmodified SDK, and prints how many it calls delivered:
//   node send.mjs SDK URL KEY FROM TO
// Event i has the id "id-i" (of PostHog a UUID that ends in i) and the game kart-(i mod 3).
import { once } from 'node:events'

const [sdk, url, key, from, to] = process.argv.slice(2)
const result = { ok: 0, failed: 0 }
const report = (error) => { error ? result.failed++ : result.ok++ }
const numbers = Array.from({ length: to - from }, (_, i) => Number(from) + i)
const game = (i) => `kart-${i % 3}`

const senders = {
  async segment() {
    const { Analytics } = await import('@segment/analytics-node')
    const client = new Analytics({ writeKey: key, host: url, path: '/segment/v1/batch', flushAt: 20 })
    for (const i of numbers) {
      client.track({ userId: 'u', event: 'lap', messageId: `id-${i}`, properties: { game: game(i), n: i } }, report)
    }
    await client.closeAndFlush({ timeout: 60_000 })
  },
  async rudderstack() {
    const { default: Rudder } = await import('@rudderstack/rudder-sdk-node')
    const client = new Rudder(key, { dataPlaneUrl: `${url}/segment`, flushAt: 20, logLevel: 'none' })
    await Promise.all(numbers.map((i) => new Promise((done) => {
      client.track({ userId: 'u', event: 'lap', messageId: `id-${i}`, properties: { game: game(i), n: i } }, (error) => { report(error); done() })
    })).concat(client.flush()))
  },
  async posthog() {
    const { PostHog } = await import('posthog-node')
    const client = new PostHog(key, { host: `${url}/posthog`, flushAt: 1000, maxBatchSize: 20 })
    client.on('error', (error) => console.error(String(error)))
    if (await client.isFeatureEnabled('nothing', 'u', { sendFeatureFlagEvents: false })) throw new Error('a flag is on that nobody set')
    for (const i of numbers) {
      client.capture({ distinctId: 'u', event: 'lap', uuid: `00000000-0000-4000-8000-${String(i).padStart(12, '0')}`, properties: { game: game(i), n: i } })
    }
    try {
      await client.flush()
      result.ok = numbers.length
    } catch (error) {
      console.error(String(error))
      result.failed = numbers.length
    }
    await client.shutdown()
  },
  async amplitude() {
    const amplitude = await import('@amplitude/analytics-node')
    await amplitude.init(key, { serverUrl: `${url}/amplitude/2/httpapi`, flushQueueSize: 20, flushIntervalMillis: 100, logLevel: 0 }).promise
    const sent = numbers.map((i) => amplitude.track({ event_type: 'lap', insert_id: `id-${i}`, event_properties: { game: game(i), n: i } }, undefined, { user_id: 'user-1' }).promise)
    for (const { code } of await Promise.all(sent)) report(code !== 200)
  },
  async cloudevents() {
    const { CloudEvent, emitterFor, HTTP, Mode } = await import('cloudevents')
    const send = async ({ headers, body }) => {
      const answer = await fetch(`${url}/cloudevents`, { method: 'POST', headers: { ...headers, Authorization: `Bearer ${key}` }, body })
      if (!answer.ok) throw new Error(await answer.text())
    }
    const emitters = [Mode.BINARY, Mode.STRUCTURED].map((mode) => emitterFor(send, { binding: HTTP, mode }))
    await Promise.all(numbers.map((i) => again(() => emitters[i % 2](new CloudEvent({
      id: `id-${i}`, type: 'lap', source: '/laps', partitionkey: game(i), data: { text: `lap-${i}` },
    })))))
    result.ok = numbers.length
  },
  async mixpanel() {
    const { default: Mixpanel } = await import('mixpanel')
    const { hostname, port } = new URL(url)
    const client = Mixpanel.init(key, { host: hostname, port, path: '/mixpanel', protocol: 'http', keepAlive: false })
    const called = (call) => again(() => new Promise((done, fail) => call((error) => error ? fail(error) : done())))
    const event = (i) => ({ event: 'lap', properties: { distinct_id: game(i), $insert_id: `id-${i}`, text: `lap-${i}` } })
    const half = numbers.length / 2
    await called((done) => client.track_batch(numbers.slice(half).map(event), {}, (errors) => done(errors?.[0])))
    await Promise.all(numbers.slice(0, half).map((i) => called((done) => client.track('lap', event(i).properties, done))))
    result.ok = numbers.length
  },
  async snowplow() {
    const { newTracker, buildStructEvent } = await import('@snowplow/node-tracker')
    const tracker = newTracker({ namespace: 'laps', appId: key, encodeBase64: false }, {
      endpoint: `${url}/snowplow`, eventMethod: 'post', bufferSize: 20,
      onRequestSuccess: (batch) => { for (const _ of batch) report() },
      onRequestFailure: ({ events, willRetry }) => { if (!willRetry) for (const _ of events) report(true) },
    })
    for (const i of numbers) tracker.track(buildStructEvent({ category: 'lap', action: `lap-${i}` }))
    await again(async () => {
      tracker.flush() // what failed waits for the next
      if (result.ok + result.failed < numbers.length) throw new Error('some are not sent')
    })
  },
  'otlp-json': () => otlp('@opentelemetry/exporter-logs-otlp-http'),
  'otlp-proto': () => otlp('@opentelemetry/exporter-logs-otlp-proto'),
}

// again calls send until it succeeds, as the program around an SDK that does not repeat would.
const again = async (send) => {
  for (let left = 100; ; left--) {
    try {
      return await send()
    } catch (error) {
      if (left === 0) throw error
      console.error(String(error))
      await new Promise((done) => setTimeout(done, 200))
    }
  }
}

async function otlp(exporter) {
  const { OTLPLogExporter } = await import(exporter)
  const { LoggerProvider, BatchLogRecordProcessor } = await import('@opentelemetry/sdk-logs')
  const { resourceFromAttributes } = await import('@opentelemetry/resources')
  for (let kart = 0; kart < 3; kart++) {
    const client = new OTLPLogExporter({ url: `${url}/otlp/v1/logs`, headers: { Authorization: `Bearer ${key}` }, compression: 'gzip', timeoutMillis: 60_000 })
    const send = client.export.bind(client)
    client.export = (records, done) => send(records, (sent) => { for (const _ of records) report(sent.code !== 0); done(sent) })
    const provider = new LoggerProvider({
      resource: resourceFromAttributes({ 'service.name': game(kart) }),
      processors: [new BatchLogRecordProcessor({ exporter: client, exportTimeoutMillis: 60_000 })],
    })
    for (const i of numbers.filter((i) => i % 3 === kart)) provider.getLogger('laps').emit({ body: `lap-${i}`, attributes: { n: i } })
    await provider.shutdown()
  }
}

await senders[sdk]()
process.stdout.write(JSON.stringify(result) + '\n') || await once(process.stdout, 'drain')
process.exit(0) // some keep timers
