// Reports events to a Spillway service and forgets them, and publishes and works jobs: .NET Standard 2.0,
// Unity included, with nothing but HttpClient. One file, no reflection. The names and defaults are those
// of the Go client.
//
//   var events = new Spillway.Reporter("https://events.example.com", new Spillway.ReporterOptions { Namespace = "kart" });
//   events.Report("com.acme.kart", "{\"event\":\"lap\",\"ms\":63210}");
//   await events.CloseAsync(TimeSpan.FromSeconds(5));
//
// Report copies nothing to the network: it queues and returns, on whatever thread. The oldest
// entries make room, what cannot be sent is tried again until it is too old, and every
// entry is counted: in Stats, Reported = Acked + Pending + the sum of Dropped.

using System;
using System.Collections.Generic;
using System.Globalization;
using System.IO;
using System.IO.Compression;
using System.Net.Http;
using System.Net.Http.Headers;
using System.Text;
using System.Threading;
using System.Threading.Tasks;

namespace Spillway
{
    /// <summary>How a Reporter works. Every default is that of the Go client.</summary>
    public sealed class ReporterOptions
    {
        public string Namespace = "default";
        /// <summary>Token of the namespace, sent as a bearer token; none by default.</summary>
        public string Token = "";
        /// <summary>Entries of a request, 1 to 1000, and bytes of their payloads.</summary>
        public int Batch = 128, BatchBytes = 256 << 10;
        /// <summary>How long an entry waits for others to fill a request.</summary>
        public TimeSpan Linger = TimeSpan.FromSeconds(1);
        /// <summary>Entries that wait, and bytes of their payloads. One partition may have half of each.</summary>
        public int Queue = 10000, QueueBytes = 32 << 20;
        /// <summary>Bytes of one payload.</summary>
        public int MaxEntry = 32 << 10;
        /// <summary>How old an entry may get here.</summary>
        public TimeSpan MaxAge = TimeSpan.FromMinutes(3);
        /// <summary>Requests on their way at once; two of them never carry the same partition.</summary>
        public int InFlight = 4;
        /// <summary>Of one attempt.</summary>
        public TimeSpan Timeout = TimeSpan.FromSeconds(10);
        /// <summary>How often a request is tried, and the bounds of the random wait between.</summary>
        public int Attempts = 4;
        public TimeSpan BackoffBase = TimeSpan.FromMilliseconds(100), BackoffMax = TimeSpan.FromSeconds(5);
        /// <summary>After how many failures in a row one attempt every ProbeEvery is made.</summary>
        public int BreakAfter = 5;
        public TimeSpan ProbeEvery = TimeSpan.FromSeconds(1);
        /// <summary>Bytes from which a body is sent as gzip; negative: never.</summary>
        public int CompressFrom = 1024;
        internal TimeSpan KeyWindow = TimeSpan.FromSeconds(110);
        /// <summary>Carries the requests; one of its own by default. The client does not dispose of it.</summary>
        public HttpMessageHandler Handler;
        /// <summary>Told of drops by reason and of errors, each at most once a second, never on the caller's thread.</summary>
        public Action<string, long> OnDrop;
        public Action<Exception> OnError;
    }

    /// <summary>Counts of entries since the client was made.</summary>
    public sealed class Stats
    {
        public long Reported, Acked, Pending;
        /// <summary>By reason: queue_overflow, stale, too_large, retries_exhausted, shutdown, rejected, unknown, invalid.</summary>
        public Dictionary<string, long> Dropped;
    }

    public sealed class Reporter : IDisposable
    {
        sealed class Entry
        {
            public Part Part;
            public byte[] Data;
            public string Id;
            public long At;      // ms since 1970, of this clock
            public long Queued;  // ms of Clock
            public bool Settled;
            public LinkedListNode<Entry> Place; // among all that wait, oldest first
        }

        sealed class Part
        {
            public string Name;
            public readonly LinkedList<Entry> List = new LinkedList<Entry>(); // oldest first
            public long Bytes;
            public bool Busy; // a request carries entries of it
        }

        sealed class Request
        {
            public readonly List<Entry> Entries = new List<Entry>();
            public readonly HashSet<Part> Parts = new HashSet<Part>();
        }

        enum Outcome { Stored, Again, Split, Rejected }

        sealed class Answer
        {
            public Outcome Outcome;
            public string[] Verdicts;   // when stored: of each entry
            public long After;          // ms to wait at least, when to be tried again
            public bool Down;           // the service did not answer for itself
            public bool Maybe;          // when to be tried again: it may have stored entries
            public Exception Error;
        }

        readonly ReporterOptions o;
        readonly string target;
        readonly HttpClient http;
        readonly string keys = Guid.NewGuid().ToString("N");
        readonly CancellationTokenSource stop = new CancellationTokenSource();
        readonly Timer timer;

        readonly object gate = new object(); // for all that follows
        readonly Dictionary<string, Part> parts = new Dictionary<string, Part>();
        readonly LinkedList<Entry> all = new LinkedList<Entry>();
        readonly HashSet<Request> requests = new HashSet<Request>();
        readonly Dictionary<string, long> dropped = new Dictionary<string, long>();
        Dictionary<string, long> untold = new Dictionary<string, long>();
        long bytes, free, freeBytes; // waiting; of partitions of which no request carries any
        long reported, acked, number, due = long.MaxValue;
        bool urgent, closed, over;
        TaskCompletionSource<bool> changed = Transport.Promise();
        int failures;  // the breaker: in a row
        long probe;    // when the next attempt may be made
        Dictionary<string, long> notices = new Dictionary<string, long>();
        Exception noticed;
        bool noticing;

        /// <summary>Throws ArgumentException for a URL or an option that cannot work. Connects to nothing yet.</summary>
        public Reporter(string url, ReporterOptions options = null)
        {
            o = options ?? new ReporterOptions();
            if (o.Batch < 1 || o.Batch > 1000 || o.Queue < 2 || o.InFlight < 1 || o.Attempts < 1 || o.BreakAfter < 1 || o.MaxEntry < 1 || o.BatchBytes < o.MaxEntry)
                throw new ArgumentException("spillway: batch is 1 to 1000, queue 2 or more, in flight, attempts and break after 1 or more, batch bytes at least an entry", "options");
            target = Transport.Endpoint(url, o.Namespace);
            http = Transport.Client(target, o.Handler, o.InFlight);
            timer = new Timer(_ => Look(), null, -1, -1);
        }

        /// <summary>Queues one entry as of now: JSON text, or other text as it is. False for what is not taken, which is counted.</summary>
        public bool Report(string partition, string payload, string id = null)
        {
            return Report(partition, payload == null ? null : Encoding.UTF8.GetBytes(payload), DateTimeOffset.UtcNow, id);
        }

        /// <summary>Queues bytes, which the client keeps: they must not change. Those that are JSON travel together, others one a request and without an id.</summary>
        public bool Report(string partition, byte[] payload, DateTimeOffset at, string id = null)
        {
            lock (gate)
            {
                reported++;
                if (payload == null || payload.Length == 0 || !Transport.ValidName(partition, 128) || !string.IsNullOrEmpty(id) && !ValidId(id)) return Drop("invalid", 1);
                if (payload.Length > o.MaxEntry) return Drop("too_large", 1);
                if (closed) return Drop("shutdown", 1);
                Part p;
                if (!parts.TryGetValue(partition, out p)) parts[partition] = p = new Part { Name = partition };
                var e = new Entry { Part = p, Data = payload, Id = id, At = at.ToUnixTimeMilliseconds(), Queued = Transport.Clock() };
                p.List.AddLast(e);
                e.Place = all.AddLast(e);
                Count(e, 1);
                Trim(p);
                if (free == 1) Arm((long)o.Linger.TotalMilliseconds);
                if (Full() && requests.Count < o.InFlight) Arm(0);
                return true;
            }
        }

        public Stats Stats()
        {
            lock (gate) return new Stats { Reported = reported, Acked = acked, Pending = Pending(), Dropped = new Dictionary<string, long>(dropped) };
        }

        /// <summary>Sends what waits without its linger; true when all of it was settled within timeout.</summary>
        public async Task<bool> FlushAsync(TimeSpan timeout)
        {
            var waits = new List<Entry>();
            var until = Transport.Clock() + (long)timeout.TotalMilliseconds;
            lock (gate)
            {
                waits.AddRange(all);
                foreach (var r in requests) waits.AddRange(r.Entries);
                urgent = true;
                Arm(0);
            }
            for (;;)
            {
                Task next;
                lock (gate)
                {
                    waits.RemoveAll(e => e.Settled);
                    if (waits.Count == 0) return true;
                    next = changed.Task;
                }
                var left = until - Transport.Clock();
                if (left <= 0) return false;
                await Task.WhenAny(next, Task.Delay((int)Math.Min(left, int.MaxValue))).ConfigureAwait(false);
            }
        }

        /// <summary>Takes no more entries, flushes for as long as timeout, and drops the rest; true when nothing was left.</summary>
        public async Task<bool> CloseAsync(TimeSpan timeout)
        {
            lock (gate) closed = true;
            var done = await FlushAsync(timeout).ConfigureAwait(false);
            lock (gate)
            {
                over = true;
                while (all.Count > 0) Lose(all.First.Value, "shutdown");
            }
            stop.Cancel();
            for (;;)
            {
                Task next;
                lock (gate)
                {
                    if (requests.Count == 0) break;
                    next = changed.Task;
                }
                await next.ConfigureAwait(false);
            }
            timer.Dispose();
            http.Dispose();
            Tell();
            return done;
        }

        /// <summary>CloseAsync without patience: what waits is dropped. Blocks for as long as callbacks run.</summary>
        public void Dispose() { Task.Run(() => CloseAsync(TimeSpan.Zero)).Wait(); }

        long Pending()
        {
            var n = reported - acked;
            foreach (var d in dropped) n -= d.Value;
            return n;
        }

        void Count(Entry e, int n)
        {
            e.Part.Bytes += n * e.Data.Length;
            bytes += n * e.Data.Length;
            if (!e.Part.Busy) Freed(n, n * e.Data.Length);
        }

        void Freed(long n, long b)
        {
            free += n;
            freeBytes += b;
        }

        bool Full() { return free >= o.Batch || freeBytes >= o.BatchBytes; }

        void Trim(Part p)
        {
            while (p.List.Count > o.Queue / 2 || p.Bytes > o.QueueBytes / 2) Lose(p.List.First.Value, "queue_overflow");
            while (all.Count > o.Queue || bytes > o.QueueBytes) Lose(all.First.Value, "queue_overflow");
        }

        // Remove takes the oldest entry of a partition, which e is, out of the queue.
        void Remove(Entry e)
        {
            e.Part.List.RemoveFirst();
            all.Remove(e.Place);
            Count(e, -1);
            if (e.Part.List.Count == 0 && !e.Part.Busy) parts.Remove(e.Part.Name);
        }

        void Lose(Entry e, string why)
        {
            Remove(e);
            e.Settled = true;
            Drop(why, 1);
        }

        static void Add(Dictionary<string, long> counts, string why, long n)
        {
            long before;
            counts.TryGetValue(why, out before);
            counts[why] = before + n;
        }

        bool Drop(string why, long n)
        {
            Add(dropped, why, n);
            if (why != "rejected") Add(untold, why, n);
            if (o.OnDrop != null)
            {
                Add(notices, why, n);
                Notice();
            }
            return false;
        }

        void Notice()
        {
            if (noticing) return;
            noticing = true;
            Task.Run(async () =>
            {
                Tell();
                try { await Task.Delay(1000, stop.Token).ConfigureAwait(false); } catch (OperationCanceledException) { }
                bool more;
                lock (gate)
                {
                    noticing = false;
                    more = notices.Count > 0 || noticed != null;
                    if (more && !over) Notice();
                }
            });
        }

        void Tell()
        {
            Dictionary<string, long> drops;
            Exception error;
            lock (gate)
            {
                drops = notices;
                error = noticed;
                notices = new Dictionary<string, long>();
                noticed = null;
            }
            try
            {
                if (o.OnDrop != null) foreach (var d in drops) o.OnDrop(d.Key, d.Value);
                if (error != null && o.OnError != null) o.OnError(error);
            }
            catch (Exception) { } // a callback's fault is its own
        }

        // Arm lets Look run within ms, or within 24 days, for a timer takes no more.
        void Arm(long ms)
        {
            ms = Math.Min(Math.Max(ms, 0), int.MaxValue);
            var at = Transport.Clock() + ms;
            if (over || at >= due) return;
            due = at;
            timer.Change(ms, -1);
        }

        // Look makes requests of what is due, and arms the timer for the rest.
        void Look()
        {
            var started = new List<Request>();
            lock (gate)
            {
                due = long.MaxValue;
                if (over) return;
                while (all.Count > 0 && Now() >= StaleAt(all.First.Value)) Lose(all.First.Value, "stale");
                while (requests.Count < o.InFlight && Wait() <= 0) started.Add(Gather());
                if (requests.Count < o.InFlight && free > 0) Arm(Wait());
                if (all.Count > 0) Arm(StaleAt(all.First.Value) - Now() + 1);
                Signal();
            }
            foreach (var r in started)
            {
                var request = r;
                Task.Run(() => Send(request));
            }
        }

        // Wait is how long until a request is due, in ms.
        long Wait()
        {
            if (free == 0) return long.MaxValue / 2;
            if (urgent || Full()) return 0;
            var oldest = long.MaxValue;
            foreach (var p in parts.Values) if (!p.Busy && p.List.Count > 0) oldest = Math.Min(oldest, p.List.First.Value.Queued);
            return oldest + (long)o.Linger.TotalMilliseconds - Transport.Clock();
        }

        Request Gather()
        {
            var r = new Request();
            long size = 0;
            for (var place = all.First; place != null && r.Entries.Count < o.Batch;)
            {
                var e = place.Value;
                place = place.Next;
                if (e.Part.Busy && !r.Parts.Contains(e.Part)) continue;
                if (r.Entries.Count > 0 && size + e.Data.Length > o.BatchBytes) break;
                if (r.Parts.Add(e.Part))
                {
                    Freed(-e.Part.List.Count, -e.Part.Bytes);
                    e.Part.Busy = true;
                }
                Remove(e);
                r.Entries.Add(e);
                size += e.Data.Length;
            }
            requests.Add(r);
            return r;
        }

        async Task Send(Request r)
        {
            for (var i = 0; i < r.Entries.Count;)
            {
                var list = new List<Entry>(); // entries that are JSON share a body, others travel alone
                while (i < r.Entries.Count && Json.Valid(r.Entries[i].Data)) list.Add(r.Entries[i++]);
                var json = list.Count > 0;
                if (!json) list.Add(r.Entries[i++]);
                await Deliver(list, json).ConfigureAwait(false);
            }
            lock (gate)
            {
                requests.Remove(r);
                foreach (var p in r.Parts)
                {
                    p.Busy = false;
                    Freed(p.List.Count, p.Bytes);
                    if (p.List.Count == 0) parts.Remove(p.Name);
                }
                if (all.Count == 0) urgent = false;
                Signal();
                Arm(0);
            }
        }

        void Signal()
        {
            var before = changed;
            changed = Transport.Promise();
            before.TrySetResult(true);
        }

        void End(List<Entry> list, string why)
        {
            list.RemoveAll(e => e.Settled);
            foreach (var e in list) e.Settled = true;
            if (list.Count > 0) Drop(why, list.Count);
        }

        // Deliver makes attempts until each entry is stored or dropped for good. All have the same
        // bytes and key, so that the service, which may have stored some of the entries, stores only
        // the others. They end when the youngest entry is stale, and before the
        // service forgets the key.
        async Task Deliver(List<Entry> list, bool json)
        {
            string why = null, late = "stale";
            Answer a = null;
            var latest = 0L;
            var maybe = false; // some entries may be stored
            foreach (var e in list) latest = Math.Max(latest, StaleAt(e));
            var body = Body(list, json);
            var zipped = o.CompressFrom >= 0 && body.Length >= o.CompressFrom;
            if (zipped) body = Zip(body);
            string key;
            lock (gate) key = keys + "-" + (++number).ToString(CultureInfo.InvariantCulture);
            for (var attempt = 1; why == null; attempt++)
            {
                if (!await Pass(latest).ConfigureAwait(false)) { why = over ? "shutdown" : late; break; }
                var sent = Now();
                var timeout = TimeSpan.FromMilliseconds(Math.Max(Math.Min(o.Timeout.TotalMilliseconds, late == "stale" ? double.MaxValue : latest - sent), 0));
                a = await Post(list, json, body, zipped, key, timeout).ConfigureAwait(false);
                lock (gate)
                {
                    failures = a.Down ? failures + 1 : 0;
                    if (a.Error != null && o.OnError != null)
                    {
                        noticed = a.Error;
                        Notice();
                    }
                    if (a.Outcome == Outcome.Stored && Settle(list, a.Verdicts)) return;
                }
                if (a.Outcome == Outcome.Split || a.Outcome == Outcome.Rejected) break;
                if (!maybe && (a.Outcome == Outcome.Stored || a.Maybe))
                {
                    maybe = true;
                    var forgotten = sent + (long)o.KeyWindow.TotalMilliseconds;
                    if (forgotten < latest)
                    {
                        latest = forgotten;
                        late = "unknown";
                    }
                }
                var wait = Math.Max(Transport.Backoff(o.BackoffBase, o.BackoffMax, attempt), a.After);
                if (over) why = "shutdown";
                else if (attempt >= o.Attempts) why = "retries_exhausted";
                else if (Now() + wait > latest || !await Transport.Sleep(wait, stop.Token).ConfigureAwait(false)) why = over ? "shutdown" : late;
            }
            if (why == null && a.Outcome == Outcome.Split && list.Count > 1 && !maybe)
            {
                var half = list.Count / 2;
                await Deliver(list.GetRange(0, half), json).ConfigureAwait(false);
                await Deliver(list.GetRange(half, list.Count - half), json).ConfigureAwait(false);
                return;
            }
            lock (gate) End(list, why ?? "rejected");
        }

        // Settle enters what became of the entries, and is true when all are settled.
        bool Settle(List<Entry> list, string[] verdicts)
        {
            var done = true;
            for (var i = 0; i < list.Count; i++)
            {
                var e = list[i];
                if (e.Settled) continue;
                if (verdicts[i] == "retry")
                {
                    done = false;
                    continue;
                }
                e.Settled = true;
                if (verdicts[i] == "drop") Drop("rejected", 1);
                else acked++;
            }
            return done;
        }

        // Pass waits until the breaker lets an attempt be made; false when that is too late.
        async Task<bool> Pass(long latest)
        {
            for (;;)
            {
                long wait;
                lock (gate)
                {
                    if (over || Now() > latest) return false;
                    wait = failures < o.BreakAfter ? 0 : probe - Transport.Clock();
                    if (wait <= 0)
                    {
                        probe = Transport.Clock() + (long)o.ProbeEvery.TotalMilliseconds;
                        return true;
                    }
                }
                if (Now() + wait > latest || !await Transport.Sleep(wait, stop.Token).ConfigureAwait(false)) return false;
            }
        }

        byte[] Body(List<Entry> list, bool json)
        {
            if (!json) return list[0].Data;
            var m = new MemoryStream();
            for (var i = 0; i < list.Count; i++)
            {
                var e = list[i];
                var id = string.IsNullOrEmpty(e.Id) ? "" : ",\"id\":\"" + e.Id.Replace("\\", "\\\\").Replace("\"", "\\\"") + "\"";
                var head = Encoding.UTF8.GetBytes((i == 0 ? "[" : ",") + "{\"partition\":\"" + e.Part.Name + "\",\"ts\":" + e.At.ToString(CultureInfo.InvariantCulture) + id + ",\"data\":");
                m.Write(head, 0, head.Length);
                m.Write(e.Data, 0, e.Data.Length);
                m.WriteByte((byte)'}');
            }
            m.WriteByte((byte)']');
            return m.ToArray();
        }

        async Task<Answer> Post(List<Entry> list, bool json, byte[] body, bool zipped, string key, TimeSpan timeout)
        {
            Dictionary<string, long> told;
            lock (gate)
            {
                told = untold;
                untold = new Dictionary<string, long>();
            }
            var a = new Answer { Outcome = Outcome.Again, Down = true, Maybe = true };
            using (var limit = CancellationTokenSource.CreateLinkedTokenSource(stop.Token))
            using (var m = new HttpRequestMessage(HttpMethod.Post, json ? target : target + "/" + list[0].Part.Name))
            {
                limit.CancelAfter(timeout);
                try
                {
                    m.Content = new ByteArrayContent(body);
                    if (zipped) m.Content.Headers.ContentEncoding.Add("gzip");
                    m.Content.Headers.ContentType = new MediaTypeHeaderValue(json ? "application/json" : "application/octet-stream");
                    m.Headers.ExpectContinue = false;
                    m.Headers.TryAddWithoutValidation("Idempotency-Key", key);
                    m.Headers.TryAddWithoutValidation("X-Sent-At", Now().ToString(CultureInfo.InvariantCulture));
                    if (!json) m.Headers.TryAddWithoutValidation("X-Event-Ts", list[0].At.ToString(CultureInfo.InvariantCulture));
                    if (!string.IsNullOrEmpty(o.Token)) m.Headers.TryAddWithoutValidation("Authorization", "Bearer " + o.Token);
                    var discards = new List<string>();
                    foreach (var d in told) discards.Add((d.Key == "invalid" ? "other" : d.Key) + "=" + d.Value.ToString(CultureInfo.InvariantCulture));
                    if (discards.Count > 0) m.Headers.TryAddWithoutValidation("X-Client-Discards", string.Join(",", discards));
                    using (var r = await http.SendAsync(m, limit.Token).ConfigureAwait(false))
                        await Read(r, a, list.Count).ConfigureAwait(false);
                }
                catch (Exception e) // the network's, in all the forms it has
                {
                    a.Error = e;
                }
            }
            if (a.Outcome != Outcome.Stored) lock (gate) foreach (var d in told) Add(untold, d.Key, d.Value);
            return a;
        }

        static async Task Read(HttpResponseMessage r, Answer a, int n)
        {
            var text = r.Content == null ? "" : await r.Content.ReadAsStringAsync().ConfigureAwait(false);
            var code = (int)r.StatusCode;
            a.Error = new HttpRequestException("spillway: the service answered " + code + " " + text.Substring(0, Math.Min(text.Length, 200)));
            if (code == 204 || code == 202) a.Verdicts = new string[n];
            if (code == 200) a.Verdicts = Json.Verdicts(text, n);
            if (a.Verdicts != null)
            {
                a.Outcome = Outcome.Stored;
                a.Error = null;
                a.Down = false;
            }
            else if (code == 413) { a.Outcome = Outcome.Split; a.Down = false; }
            else if (code == 408 || code == 429 || code >= 500)
            {
                a.Down = code >= 500;
                a.Maybe = code >= 500 && !(code == 503 && Json.DidNothing(text));
                a.After = Transport.RetryAfter(r);
            }
            else if (code != 200) { a.Outcome = Outcome.Rejected; a.Down = false; }
        }

        static byte[] Zip(byte[] body)
        {
            var packed = new MemoryStream();
            using (var zip = new GZipStream(packed, CompressionMode.Compress, true)) zip.Write(body, 0, body.Length);
            return packed.ToArray();
        }

        long StaleAt(Entry e) { return e.At + (long)o.MaxAge.TotalMilliseconds; }

        static long Now() { return DateTimeOffset.UtcNow.ToUnixTimeMilliseconds(); }

        static bool ValidId(string id)
        {
            if (id.Length > 64) return false;
            foreach (var c in id) if (c <= ' ' || c > '~') return false;
            return true;
        }
    }

    /// <summary>What the reporter and the queues share.</summary>
    static class Transport
    {
        static readonly Random random = new Random();
        static readonly System.Diagnostics.Stopwatch since = System.Diagnostics.Stopwatch.StartNew();

        /// <summary>The URL of a namespace, without a slash at its end.</summary>
        public static string Endpoint(string url, string name)
        {
            Uri u;
            if (!Uri.TryCreate(url, UriKind.Absolute, out u) || u.Scheme != "http" && u.Scheme != "https" || u.UserInfo != "" || u.Query != "" || u.Fragment != "")
                throw new ArgumentException("spillway: the URL is http(s)://host:port", "url");
            if (!ValidName(name, 64)) throw new ArgumentException("spillway: bad namespace", "options");
            return u.AbsoluteUri.TrimEnd('/') + "/v1/" + name;
        }

        public static HttpClient Client(string target, HttpMessageHandler handler, int connections)
        {
            if (handler == null)
            {
                var point = System.Net.ServicePointManager.FindServicePoint(new Uri(target));
                point.ConnectionLimit = Math.Max(point.ConnectionLimit, connections);
            }
            return new HttpClient(handler ?? new HttpClientHandler { AllowAutoRedirect = false }, handler == null) { Timeout = Timeout.InfiniteTimeSpan };
        }

        /// <summary>How long the service wishes that nothing is sent, in ms.</summary>
        public static long RetryAfter(HttpResponseMessage r)
        {
            var after = r.Headers.RetryAfter;
            double ms = 0;
            if (after != null && after.Delta != null) ms = after.Delta.Value.TotalMilliseconds;
            else if (after != null && after.Date != null) ms = (after.Date.Value - DateTimeOffset.UtcNow).TotalMilliseconds;
            return (long)Math.Min(Math.Max(ms, 0), 3600000);
        }

        /// <summary>A random time up to the nth bound (full jitter), in ms.</summary>
        public static long Backoff(TimeSpan first, TimeSpan most, int n)
        {
            var bound = Math.Min(most.TotalMilliseconds, first.TotalMilliseconds * Math.Pow(2, n - 1));
            lock (random) return (long)(random.NextDouble() * bound);
        }

        /// <summary>False when the token ends it.</summary>
        public static async Task<bool> Sleep(long ms, CancellationToken token)
        {
            try
            {
                await Task.Delay((int)Math.Min(Math.Max(ms, 0), int.MaxValue), token).ConfigureAwait(false);
                return true;
            }
            catch (OperationCanceledException) { return false; }
        }

        /// <summary>ms of a clock that nobody sets.</summary>
        public static long Clock() { return since.ElapsedMilliseconds; }

        public static TaskCompletionSource<bool> Promise() { return new TaskCompletionSource<bool>(TaskCreationOptions.RunContinuationsAsynchronously); }

        public static bool ValidName(string name, int longest)
        {
            if (string.IsNullOrEmpty(name) || name.Length > longest) return false;
            for (var i = 0; i < name.Length; i++)
            {
                var c = name[i];
                var letter = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9';
                if (!letter && (i == 0 || c != '.' && c != '_' && c != '-')) return false;
            }
            return true;
        }
    }

    /// <summary>As much of JSON as the client needs.</summary>
    static class Json
    {
        const int MaxDepth = 500;

        static readonly UTF8Encoding Strict = new UTF8Encoding(false, true);

        /// <summary>Whether bytes are one JSON value.</summary>
        public static bool Valid(byte[] text)
        {
            try { Strict.GetCharCount(text); } catch (ArgumentException) { return false; }
            var at = 0;
            return Value(text, ref at, 0) && Space(text, ref at) == text.Length;
        }

        static int Space(byte[] s, ref int at)
        {
            while (at < s.Length && (s[at] == ' ' || s[at] == '\t' || s[at] == '\n' || s[at] == '\r')) at++;
            return at;
        }

        static bool Take(byte[] s, ref int at, char c)
        {
            if (Space(s, ref at) == s.Length || s[at] != c) return false;
            at++;
            return true;
        }

        static bool Value(byte[] s, ref int at, int depth)
        {
            if (depth > MaxDepth || Space(s, ref at) == s.Length) return false;
            switch ((char)s[at])
            {
                case '"': return Text(s, ref at);
                case 't': return Word(s, ref at, "true");
                case 'f': return Word(s, ref at, "false");
                case 'n': return Word(s, ref at, "null");
                case '{':
                    at++;
                    if (Take(s, ref at, '}')) return true;
                    do
                    {
                        Space(s, ref at);
                        if (!Text(s, ref at) || !Take(s, ref at, ':') || !Value(s, ref at, depth + 1)) return false;
                    } while (Take(s, ref at, ','));
                    return Take(s, ref at, '}');
                case '[':
                    at++;
                    if (Take(s, ref at, ']')) return true;
                    do if (!Value(s, ref at, depth + 1)) return false; while (Take(s, ref at, ','));
                    return Take(s, ref at, ']');
                default: return Number(s, ref at);
            }
        }

        static bool Word(byte[] s, ref int at, string word)
        {
            foreach (var c in word) if (at >= s.Length || s[at++] != c) return false;
            return true;
        }

        static bool Text(byte[] s, ref int at)
        {
            if (at >= s.Length || s[at] != '"') return false;
            for (at++; at < s.Length; at++)
            {
                if (s[at] == '"') { at++; return true; }
                if (s[at] < ' ') return false;
                if (s[at] != '\\') continue;
                if (++at >= s.Length || "\"\\/bfnrtu".IndexOf((char)s[at]) < 0) return false;
                if (s[at] != 'u') continue;
                for (var i = 0; i < 4; i++) if (++at >= s.Length || !Uri.IsHexDigit((char)s[at])) return false;
            }
            return false;
        }

        static int Digits(byte[] s, ref int at)
        {
            var from = at;
            while (at < s.Length && s[at] >= '0' && s[at] <= '9') at++;
            return at - from;
        }

        static bool Number(byte[] s, ref int at)
        {
            if (s[at] == '-') at++;
            var from = at;
            var n = Digits(s, ref at);
            if (n == 0 || n > 1 && s[from] == '0') return false;
            if (at < s.Length && s[at] == '.')
            {
                at++;
                if (Digits(s, ref at) == 0) return false;
            }
            if (at < s.Length && (s[at] == 'e' || s[at] == 'E'))
            {
                at++;
                if (at < s.Length && (s[at] == '+' || s[at] == '-')) at++;
                if (Digits(s, ref at) == 0) return false;
            }
            return true;
        }

        /// <summary>What an answer says of each of n entries: "retry", "drop", or that it is stored. Null where it is none of Spillway's.</summary>
        public static string[] Verdicts(string answer, int n)
        {
            int i;
            string value;
            var said = Members(answer);
            if (said == null || !said.TryGetValue("accepted", out value) || !Whole(value, n, out i)) return null;
            var verdicts = new string[n];
            if (!said.TryGetValue("results", out value) || value == "null") return verdicts;
            var results = Values(value, '[', ']');
            if (results == null) return null;
            foreach (var result in results)
            {
                var one = Members(result.Value);
                string at;
                if (one == null || !one.TryGetValue("i", out at) || !Whole(at, n - 1, out i) || !one.TryGetValue("result", out value) || value[0] != '"') return null;
                verdicts[i] = value.Trim('"');
            }
            return verdicts;
        }

        /// <summary>Whether a service's own words of status 503 say that it stored nothing.</summary>
        public static bool DidNothing(string answer)
        {
            var said = Members(answer);
            string outcome;
            return said != null && said.ContainsKey("error") && !(said.TryGetValue("outcome", out outcome) && outcome == "\"unknown\"");
        }

        static bool Whole(string text, int most, out int n)
        {
            return int.TryParse(text, NumberStyles.None, CultureInfo.InvariantCulture, out n) && n <= most;
        }

        // Members are the values of an object by name, as they are written; null for another text.
        static Dictionary<string, string> Members(string text)
        {
            var list = Values(text, '{', '}');
            if (list == null) return null;
            var members = new Dictionary<string, string>();
            foreach (var member in list) members[member.Key] = member.Value;
            return members;
        }

        // Values are those of an object or array, as they are written, with their names; null for another text.
        static List<KeyValuePair<string, string>> Values(string text, char open, char close)
        {
            var s = Encoding.UTF8.GetBytes(text);
            var at = 0;
            if (!Valid(s) || !Take(s, ref at, open)) return null;
            var list = new List<KeyValuePair<string, string>>();
            if (Take(s, ref at, close)) return list;
            do
            {
                var name = "";
                var from = Space(s, ref at);
                if (open == '{')
                {
                    Text(s, ref at);
                    name = Encoding.UTF8.GetString(s, from + 1, at - from - 2);
                    Take(s, ref at, ':');
                    from = Space(s, ref at);
                }
                Value(s, ref at, 0);
                list.Add(new KeyValuePair<string, string>(name, Encoding.UTF8.GetString(s, from, at - from)));
            } while (Take(s, ref at, ','));
            return list;
        }
    }
}
