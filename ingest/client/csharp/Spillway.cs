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
        /// <summary>How often a request is tried that is answered 408, 429, 500 or what is not of Spillway; otherwise until it is too old. And the bounds of the random wait between.</summary>
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
        /// <summary>Told of drops by reason and of errors, each at most once a second, never on the caller's thread. Without OnError, Console.Error is, of each kind of error once a minute at most.</summary>
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
            public bool No;             // more attempts may not change it, so that Attempts bounds them
            public Exception Error;
        }

        readonly ReporterOptions o;
        readonly Action<Exception> onError;
        readonly Guest ofDrops = new Guest(), ofErrors = new Guest();
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
            onError = o.OnError ?? Transport.Warner(target);
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
            foreach (var d in drops) ofDrops.Call(() => o.OnDrop(d.Key, d.Value));
            if (error != null) ofErrors.Call(() => onError(error));
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
                while (requests.Count < o.InFlight && Wait() <= 0)
                {
                    var r = Gather();
                    if (r.Entries.Count == 0) continue; // stale, all of them
                    requests.Add(r);
                    started.Add(r);
                }
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
                if (Now() >= StaleAt(e))
                {
                    Lose(e, "stale");
                    continue;
                }
                if (r.Parts.Add(e.Part))
                {
                    Freed(-e.Part.List.Count, -e.Part.Bytes);
                    e.Part.Busy = true;
                }
                Remove(e);
                r.Entries.Add(e);
                size += e.Data.Length;
            }
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
            var noes = 0;
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
                    if (a.Error != null)
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
                else if (a.No && ++noes >= o.Attempts) why = "retries_exhausted";
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
                    var error = Queues.NotAnswered(e);
                    a.Error = error;
                    a.Maybe = error.Kind == ErrorKind.Unknown;
                }
            }
            if (a.Outcome != Outcome.Stored) lock (gate) foreach (var d in told) Add(untold, d.Key, d.Value);
            return a;
        }

        static async Task Read(HttpResponseMessage r, Answer a, int n)
        {
            var text = r.Content == null ? "" : await r.Content.ReadAsStringAsync().ConfigureAwait(false);
            var code = (int)r.StatusCode;
            a.Error = code == 200 ? SpillwayException.Foreign() : Queues.Refused(r, text);
            if (code == 204) a.Verdicts = new string[n];
            if (code == 200) a.Verdicts = Json.Verdicts(text, n);
            a.No = a.Verdicts == null && (code < 502 || code > 504);
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

    /// <summary>What became of a call that failed.</summary>
    public enum ErrorKind
    {
        /// <summary>There is no such job, or the queue has none.</summary>
        NoJob,
        /// <summary>The job is not leased to this attempt any more.</summary>
        Gone,
        Empty, TooLarge, TooManyJobs, TooManyKeys, TooManyQueues,
        /// <summary>The service rejects the request, and would again.</summary>
        Invalid,
        Unauthorized, NoNamespace, RateLimited,
        /// <summary>The service cannot serve the request now; nothing was done.</summary>
        Unavailable,
        /// <summary>The service may have done what was asked.</summary>
        Unknown
    }

    /// <summary>An answer that is none, or that says no.</summary>
    public sealed class SpillwayException : Exception
    {
        public ErrorKind Kind { get; internal set; }
        /// <summary>The service's word, such as too_many_jobs; empty: it gave none.</summary>
        public string Code { get; internal set; } = "";
        /// <summary>Of HTTP; 0: no answer.</summary>
        public int Status { get; internal set; }
        /// <summary>The service's wish.</summary>
        public TimeSpan RetryAfter { get; internal set; }

        internal SpillwayException(ErrorKind kind, string message, Exception inner = null) : base("spillway: " + message, inner) { Kind = kind; }

        internal bool Temporary { get { return Kind == ErrorKind.RateLimited || Kind == ErrorKind.Unavailable || Kind == ErrorKind.Unknown; } }
        internal bool Barred { get { return Kind == ErrorKind.Unauthorized || Kind == ErrorKind.NoNamespace; } }

        // Buffer is that of a publish that a buffer answers.
        internal static SpillwayException Buffer() { return new SpillwayException(ErrorKind.NoNamespace, "the namespace is a buffer, and took the payload as an entry; jobs are for one of kind queue") { Status = 200 }; }

        internal static SpillwayException Foreign() { return new SpillwayException(ErrorKind.Unknown, "an answer that is none of Spillway's") { Status = 200 }; }
    }

    /// <summary>A handler throws it for what no other delivery mends: the job is buried.</summary>
    public sealed class PermanentException : Exception
    {
        public PermanentException(string message, Exception inner = null) : base(message, inner) { }
    }

    /// <summary>A handler throws it to have its job again after a while.</summary>
    public sealed class RetryInException : Exception
    {
        public readonly TimeSpan After;
        public RetryInException(string message, TimeSpan after, Exception inner = null) : base(message, inner) { After = after; }
    }

    /// <summary>No error: the work goes on elsewhere, and whoever does it settles the job within a time.</summary>
    public sealed class DeferredException : Exception
    {
        public readonly TimeSpan TTR;
        public DeferredException(TimeSpan ttr) : base("deferred") { TTR = ttr; }
    }

    /// <summary>No error: the job goes back to the head of its queue, uncounted.</summary>
    public sealed class NotBegunException : Exception { }

    /// <summary>How Queues work. Every default is that of the Go client.</summary>
    public sealed class QueuesOptions
    {
        public string Namespace = "default";
        /// <summary>Token of the namespace, sent as a bearer token; none by default.</summary>
        public string Token = "";
        /// <summary>Of one attempt, beyond what a claim waits.</summary>
        public TimeSpan Timeout = TimeSpan.FromSeconds(10);
        /// <summary>How often a request is tried, and the bounds of the random wait between.</summary>
        public int Attempts = 4;
        public TimeSpan BackoffBase = TimeSpan.FromMilliseconds(100), BackoffMax = TimeSpan.FromSeconds(5);
        /// <summary>Carries the requests; one of its own by default. Queues do not dispose of it.</summary>
        public HttpMessageHandler Handler;
    }

    /// <summary>What a publish may say.</summary>
    public sealed class PublishOptions
    {
        /// <summary>How long the jobs wait until they are ready.</summary>
        public TimeSpan Delay;
        /// <summary>A time to come, instead of Delay.</summary>
        public DateTimeOffset? At;
        /// <summary>How long they live, Delay included; zero: for ever.</summary>
        public TimeSpan TTL;
        /// <summary>How often they are delivered at most; 0: 3 times.</summary>
        public int Tries;
        /// <summary>Your name for a job: 1 to 64 letters, digits, _ and -. While a job has it, no other is stored under it.</summary>
        public string Id;
        /// <summary>Stores the job this many times, with the attributes shard_index and shard_total.</summary>
        public int Shards;
        /// <summary>Makes a repeat within Dedup (zero: 2 minutes) store nothing and answer what the first did.</summary>
        public string Key;
        public TimeSpan Dedup;
        /// <summary>The queue that gets a job when a job ends.</summary>
        public string OnEnd;
        /// <summary>Facts beside the payload, 16 at most.</summary>
        public Dictionary<string, string> Attributes = new Dictionary<string, string>();
        /// <summary>For how long no other job is stored under UniqueKey, or Id, whatever becomes of the first.</summary>
        public TimeSpan Unique;
        public string UniqueKey;
        /// <summary>What a double does to the first while that is delayed: keep, replace or extend.</summary>
        public string OnConflict;
    }

    /// <summary>What became of a publish.</summary>
    public sealed class Published
    {
        public string[] Ids;
        /// <summary>An earlier publish with the same Key stored them; a job with the same Id exists, or one is Unique, and nothing was stored; that was changed.</summary>
        public bool Repeated, Exists, Changed;
    }

    public sealed class ClaimOptions
    {
        /// <summary>Jobs at most, 1 to 1000.</summary>
        public int Count = 1;
        /// <summary>How long they are leased (zero: as a rule for the queue says, or a minute), and how long to wait for the first.</summary>
        public TimeSpan TTR, Wait;
    }

    /// <summary>Why a handler was told to end.</summary>
    public enum Cause { None, LeaseLost, Stopped }

    /// <summary>A delivery of a job. Queue, Id and Attempt settle it.</summary>
    public sealed class Job
    {
        public string Queue, Id;
        /// <summary>Deliveries so far, with this one, and at most.</summary>
        public int Attempt, Tries;
        public byte[] Payload = new byte[0];
        public Dictionary<string, string> Attributes = new Dictionary<string, string>();
        /// <summary>Of GetAsync, PeekAsync and WaitAsync: ready, prepared, delayed, leased, dead, acked, or gone: it ended unkept; and why it is dead.</summary>
        public string State = "", Reason = "";
        /// <summary>Of GetAsync and WaitAsync: what its ack said, as JSON; empty: nothing.</summary>
        public string Result = "";
        /// <summary>Of GetAsync: percent and a note, that its worker said with ProgressAsync; -1: it did not.</summary>
        public int Progress = -1;
        public string Note = "";
        /// <summary>Unix ms of the service's clock; 0: never, not.</summary>
        public long PublishedMs, ExpiresMs, AckedMs;
        /// <summary>Of a worker's: why its token was cancelled.</summary>
        public Cause Cause { get { return (Cause)Volatile.Read(ref cause); } }
        internal int cause;
        internal string Deadline = ""; // of the lease that a claim got; empty: a touch has moved it
        internal TimeSpan TTR = TimeSpan.FromMinutes(1); // that it was claimed for

        /// <summary>The payload as UTF-8.</summary>
        public string Text() { return Encoding.UTF8.GetString(Payload); }
    }

    /// <summary>The jobs of a queue. Delayed and Leased are -1 where the service has too many of both to tell them apart; Pending is their sum.</summary>
    public sealed class Counts { public long Ready, Dead, Delayed, Leased, Pending, OldestAgeMs; }

    /// <summary>Publishes and claims jobs. Each call is a request, and throws SpillwayException. Safe for concurrent use.</summary>
    public sealed class Queues : IDisposable
    {
        internal sealed class Call
        {
            public HttpMethod Method = HttpMethod.Post;
            public string Path, Type, Key;
            public List<string> Query = new List<string>();
            public byte[] Body;
            public long Wait, Timeout, KeyMs; // ms
            public int Attempts;
            public bool Maybe; // an attempt before the last may have done what was asked

            public void Set(string name, string value) { if (!string.IsNullOrEmpty(value)) Add(name, value); }
            public void Add(string name, string value) { Query.Add(name + "=" + Uri.EscapeDataString(value)); }
            public void Set(string name, TimeSpan d) { if (d != TimeSpan.Zero) Set(name, Ms(d) + "ms"); }
            public void Set(string name, int n) { if (n != 0) Set(name, n.ToString(CultureInfo.InvariantCulture)); }
        }

        const int MaxError = 1024, MaxResult = 4096; // bytes
        static readonly TimeSpan MaxAfter = TimeSpan.FromDays(30);
        static readonly Dictionary<string, ErrorKind> kinds = new Dictionary<string, ErrorKind>
        {
            { "no_such_job", ErrorKind.NoJob }, { "too_many_jobs", ErrorKind.TooManyJobs }, { "too_many_keys", ErrorKind.TooManyKeys },
            { "too_many_queues", ErrorKind.TooManyQueues }, { "no_such_namespace", ErrorKind.NoNamespace }, { "unauthorized", ErrorKind.Unauthorized },
            { "forbidden", ErrorKind.Unauthorized }, { "cross_origin", ErrorKind.Unauthorized }, { "rate_limited", ErrorKind.RateLimited },
            { "empty_body", ErrorKind.Empty }, { "empty_batch", ErrorKind.Empty }, { "body_too_large", ErrorKind.TooLarge },
            { "entry_too_large", ErrorKind.TooLarge }, { "too_many_entries", ErrorKind.TooLarge }, { "request_timeout", ErrorKind.Unavailable },
            { "hung_up", ErrorKind.Unknown }, { "internal", ErrorKind.Unknown }, { "store_unavailable", ErrorKind.Unavailable },
            { "store_full", ErrorKind.Unavailable }, { "overloaded", ErrorKind.Unavailable }, { "shutting_down", ErrorKind.Unavailable },
            { "not_ready", ErrorKind.Unavailable },
        };

        readonly QueuesOptions o;
        readonly string target;
        readonly HttpClient http;
        readonly string keys = Guid.NewGuid().ToString("N");
        long number;

        /// <summary>Throws ArgumentException for a URL or an option that cannot work. Connects to nothing yet.</summary>
        public Queues(string url, QueuesOptions options = null)
        {
            o = options ?? new QueuesOptions();
            target = Transport.Endpoint(url, o.Namespace) + "/";
            foreach (var c in o.Token ?? "") if (c <= ' ' || c > '~') throw new ArgumentException("spillway: the token holds a character that no token has", "options");
            if (o.Timeout <= TimeSpan.Zero || o.Attempts < 1 || o.BackoffBase < TimeSpan.Zero || o.BackoffMax < o.BackoffBase)
                throw new ArgumentException("spillway: the timeout is none, the attempts are fewer than 1, or a back-off is out of range", "options");
            http = Transport.Client(target, o.Handler, 64);
        }

        /// <summary>Ends calls under way.</summary>
        public void Dispose() { http.Dispose(); }

        /// <summary>Stores a job, and ends when the service has it. Attempts in vain do not make it twice. After ErrorKind.Unknown repeat it with a Key of your own.</summary>
        public Task<Published> PublishAsync(string queue, byte[] payload, PublishOptions options = null, CancellationToken token = default(CancellationToken))
        {
            return Publish(queue, "application/octet-stream", payload, options, token);
        }

        public Task<Published> PublishAsync(string queue, string payload, PublishOptions options = null, CancellationToken token = default(CancellationToken))
        {
            return PublishAsync(queue, Encoding.UTF8.GetBytes(payload), options, token);
        }

        /// <summary>Stores several, all or none. No payload may have a line break.</summary>
        public async Task<Published> PublishManyAsync(string queue, IEnumerable<byte[]> payloads, PublishOptions options = null, CancellationToken token = default(CancellationToken))
        {
            var body = new MemoryStream();
            foreach (var p in payloads)
            {
                if (p.Length == 0) throw new SpillwayException(ErrorKind.Empty, "a payload is empty");
                if (Array.IndexOf(p, (byte)'\n') >= 0 || p[p.Length - 1] == '\r') throw new SpillwayException(ErrorKind.Invalid, "a payload has a line break: publish it alone") { Code = "bad_ndjson" };
                body.Write(p, 0, p.Length);
                body.WriteByte((byte)'\n');
            }
            return await Publish(queue, "application/x-ndjson", body.ToArray(), options, token).ConfigureAwait(false);
        }

        async Task<Published> Publish(string queue, string type, byte[] body, PublishOptions options, CancellationToken token)
        {
            var p = options ?? new PublishOptions();
            if (body.Length == 0) throw new SpillwayException(ErrorKind.Empty, "there is no payload");
            var c = new Call { Path = Check(queue), Type = type, Body = body, KeyMs = 120000 };
            c.Set("delay", p.Delay);
            if (p.At != null) c.Set("at", p.At.Value.ToString("o", CultureInfo.InvariantCulture));
            c.Set("ttl", p.TTL);
            c.Set("tries", p.Tries);
            c.Set("id", p.Id);
            c.Set("shards", p.Shards);
            c.Set("on_end", p.OnEnd);
            c.Set("unique", p.Unique);
            c.Set("unique_key", p.UniqueKey);
            c.Set("on_conflict", p.OnConflict);
            foreach (var a in p.Attributes) if (a.Value != null) c.Add("attribute." + Uri.EscapeDataString(a.Key), a.Value);
            c.Key = string.IsNullOrEmpty(p.Key) ? keys + "-" + Interlocked.Increment(ref number).ToString(CultureInfo.InvariantCulture) : p.Key;
            if (!string.IsNullOrEmpty(p.Key) && p.Dedup != TimeSpan.Zero)
            {
                c.Set("dedup", p.Dedup);
                c.KeyMs = Ms(p.Dedup);
            }
            var said = Json.Members(await Do(c, token).ConfigureAwait(false));
            if (Json.Of(said, "evicted") != null) throw SpillwayException.Buffer();
            var ids = new List<string>();
            foreach (var one in Json.Items(Json.Of(said, "ids")) ?? new List<string>()) ids.Add(Json.Text(one));
            if (ids.Count == 0 || ids.Exists(string.IsNullOrEmpty)) throw SpillwayException.Foreign();
            return new Published
            {
                Ids = ids.ToArray(), Repeated = !string.IsNullOrEmpty(p.Key) && Json.Of(said, "repeated") == "true", Exists = Json.Of(said, "exists") == "true",
                Changed = Json.Of(said, "changed") == "true",
            };
        }

        /// <summary>Leases ready jobs, the first queue first; none when there are none until Wait is over.</summary>
        public Task<List<Job>> ClaimAsync(IList<string> queues, ClaimOptions options = null, CancellationToken token = default(CancellationToken))
        {
            return Claim(queues, options ?? new ClaimOptions(), o.Attempts, token);
        }

        internal async Task<List<Job>> Claim(IList<string> queues, ClaimOptions options, int attempts, CancellationToken token)
        {
            if (queues.Count == 0) Check("");
            foreach (var queue in queues) Check(queue);
            var c = new Call { Path = string.Join(",", queues) + "/claim", Wait = Ms(options.Wait), Attempts = attempts };
            c.Set("count", options.Count);
            c.Set("ttr", options.TTR);
            c.Set("wait", options.Wait);
            var list = Json.Items(Json.Of(Json.Members(await Do(c, token).ConfigureAwait(false)), "jobs"));
            if (list == null) throw SpillwayException.Foreign();
            if (list.Count > options.Count) throw new SpillwayException(ErrorKind.Unknown, "an answer with more jobs than were asked for");
            var jobs = list.ConvertAll(Read);
            if (jobs.Exists(j => !queues.Contains(j.Queue))) throw SpillwayException.Foreign();
            return jobs;
        }

        /// <summary>The job is done, also when its lease is over.</summary>
        public Task AckAsync(Job job, string result = null, CancellationToken token = default(CancellationToken)) { return Settle(job, Line(job, "ack", more: ResultOf(result)), token); }

        /// <summary>Gives a job back, to be ready again after a while, 30 days at most. error is why: 1 KiB of it is kept.</summary>
        public Task NackAsync(Job job, TimeSpan after = default(TimeSpan), string error = null, CancellationToken token = default(CancellationToken)) { return Settle(job, Line(job, "nack", after, error), token); }

        /// <summary>Gives a job up: it is dead.</summary>
        public Task BuryAsync(Job job, string error = null, CancellationToken token = default(CancellationToken)) { return Settle(job, Line(job, "bury", TimeSpan.Zero, error), token); }

        /// <summary>Leases a job for that long from now on.</summary>
        public Task TouchAsync(Job job, TimeSpan ttr, CancellationToken token = default(CancellationToken)) { return Touch(job, ttr, token); }

        /// <summary>Says how far the work got: percent, and a note of which 200 bytes are kept; GetAsync has both. A touch, for ttr, or as long as the job was claimed for.</summary>
        public Task ProgressAsync(Job job, int percent, string note = "", TimeSpan ttr = default(TimeSpan), CancellationToken token = default(CancellationToken))
        {
            return Touch(job, ttr == TimeSpan.Zero ? job.TTR : ttr, token, more: ",\"progress\":" + percent.ToString(CultureInfo.InvariantCulture) + ",\"note\":" + Json.Quote(note));
        }

        /// <summary>A touch, and somebody else will settle it.</summary>
        public Task DeferAsync(Job job, TimeSpan ttr, CancellationToken token = default(CancellationToken)) { return Settle(job, Line(job, "defer", ttr), token); }

        /// <summary>Gives a job back to the head of its queue, uncounted. Sent once: the next delivery has the same attempt.</summary>
        public Task RequeueAsync(Job job, CancellationToken token = default(CancellationToken)) { return Settle(job, Line(new Job { Id = job.Id, Attempt = job.Attempt }, "requeue"), token, 1); }

        /// <summary>A job in whatever state it is.</summary>
        public Task<Job> GetAsync(string queue, string id, CancellationToken token = default(CancellationToken)) { return WaitAsync(queue, id, TimeSpan.Zero, token); }

        /// <summary>
        /// A job once it has ended: acked where a rule keeps it, gone where none does, dead; after wait, 10 minutes at most, in the
        /// state that it is in; or NoJob, also of one that ended unkept before. So look at State first.
        /// </summary>
        public async Task<Job> WaitAsync(string queue, string id, TimeSpan wait, CancellationToken token = default(CancellationToken))
        {
            var c = new Call { Method = HttpMethod.Get, Path = Check(queue) + "/jobs/" + Uri.EscapeDataString(id), Wait = Ms(wait) };
            c.Set("wait", wait);
            return Read(await Do(c, token).ConfigureAwait(false));
        }

        /// <summary>The job that is claimed next.</summary>
        public async Task<Job> PeekAsync(string queue, CancellationToken token = default(CancellationToken))
        {
            return Read(await Do(new Call { Method = HttpMethod.Get, Path = Check(queue) + "/peek" }, token).ConfigureAwait(false));
        }

        public async Task DeleteAsync(string queue, string id, CancellationToken token = default(CancellationToken))
        {
            var c = new Call { Method = HttpMethod.Delete, Path = Check(queue) + "/jobs/" + Uri.EscapeDataString(id) };
            try
            {
                if (Json.Text(Json.Of(Json.Members(await Do(c, token).ConfigureAwait(false)), "state")) == null) throw SpillwayException.Foreign();
            }
            catch (SpillwayException e) when (e.Kind == ErrorKind.NoJob && c.Maybe) { } // an attempt whose answer was lost deleted it
        }

        public async Task<Counts> CountsAsync(string queue, CancellationToken token = default(CancellationToken))
        {
            var said = Json.Members(await Do(new Call { Method = HttpMethod.Get, Path = Check(queue) }, token).ConfigureAwait(false));
            if (Json.Whole(said, "ready", -1) < 0) throw SpillwayException.Foreign();
            return new Counts
            {
                Ready = Json.Whole(said, "ready", 0), Dead = Json.Whole(said, "dead", 0), Delayed = Json.Whole(said, "delayed", -1),
                Leased = Json.Whole(said, "leased", -1), Pending = Json.Whole(said, "pending", 0), OldestAgeMs = Json.Whole(said, "oldest_age_ms", 0),
            };
        }

        async Task Settle(Job job, string line, CancellationToken token, int attempts = 0, long timeout = 0)
        {
            var errors = await SettleAll(job.Queue, new List<string> { line }, token, attempts, timeout).ConfigureAwait(false);
            if (errors[0] != null) throw errors[0];
        }

        internal async Task Touch(Job job, TimeSpan ttr, CancellationToken token, int attempts = 0, long timeout = 0, string more = "")
        {
            job.Deadline = ""; // its answer may be lost, or late
            await Settle(job, Line(job, "touch", ttr, more: more), token, attempts, timeout).ConfigureAwait(false);
        }

        // SettleAll sends lines of one queue together. What it returns is the error of each, or null.
        internal async Task<SpillwayException[]> SettleAll(string queue, List<string> lines, CancellationToken token, int attempts = 0, long timeout = 0)
        {
            var c = new Call { Path = Check(queue) + "/settle", Type = "application/x-ndjson", Body = Encoding.UTF8.GetBytes(string.Join("\n", lines) + "\n"), Attempts = attempts, Timeout = timeout };
            var results = Json.Items(Json.Of(Json.Members(await Do(c, token).ConfigureAwait(false)), "results"));
            if (results == null || results.Count != lines.Count) throw SpillwayException.Foreign();
            var errors = new SpillwayException[lines.Count];
            for (var i = 0; i < errors.Length; i++)
            {
                var one = Json.Members(results[i]);
                string code = Json.Text(Json.Of(one, "error")), state = Json.Text(Json.Of(one, "state"));
                if (!string.IsNullOrEmpty(code)) errors[i] = new SpillwayException(KindOf(code, ErrorKind.Invalid), code + ": " + Json.Text(Json.Of(one, "message"))) { Code = code, Status = 200 };
                else if (string.IsNullOrEmpty(state)) throw SpillwayException.Foreign();
                else if (state == "gone" && !c.Maybe) errors[i] = new SpillwayException(ErrorKind.Gone, "the job is not leased to this attempt any more");
            }
            return errors;
        }

        // ResultOf is what the line of an ack says of a result; null or empty: nothing.
        internal static string ResultOf(string json)
        {
            if (string.IsNullOrEmpty(json)) return "";
            var bytes = Encoding.UTF8.GetBytes(json);
            if (bytes.Length > MaxResult || !Json.Valid(bytes)) throw new SpillwayException(ErrorKind.Invalid, "a result is JSON, 4 KiB at most");
            return ",\"result\":" + json.Replace('\n', ' ').Replace('\r', ' '); // which are between its tokens
        }

        // Line is that of a settle. It changes only the delivery that it names; a requeue of a lease that was not prolonged
        // names its deadline, too, because the next delivery has the same attempt.
        internal static string Line(Job job, string act, TimeSpan after = default(TimeSpan), string error = null, string more = "")
        {
            var line = "{\"id\":" + Json.Quote(job.Id) + ",\"attempt\":" + job.Attempt.ToString(CultureInfo.InvariantCulture) + ",\"do\":\"" + act + "\"";
            if (act == "nack" || act == "touch" || act == "defer") line += ",\"ms\":" + Ms(after < TimeSpan.Zero ? TimeSpan.Zero : after > MaxAfter ? MaxAfter : after);
            if (act == "requeue" && job.Deadline != "") line += ",\"deadline_ms\":" + job.Deadline;
            if (error != null) line += ",\"error\":" + Json.Quote(Cut(error));
            return line + more + "}";
        }

        // Cut is as much of a text as is kept, at a character.
        static string Cut(string text)
        {
            var bytes = Encoding.UTF8.GetBytes(text);
            var n = bytes.Length;
            if (n > MaxError) for (n = MaxError; (bytes[n] & 0xC0) == 0x80; n--) { }
            return Encoding.UTF8.GetString(bytes, 0, n);
        }

        static long Ms(TimeSpan d) { return (long)Math.Ceiling(d.TotalMilliseconds); }

        static ErrorKind KindOf(string code, ErrorKind otherwise)
        {
            ErrorKind kind;
            return kinds.TryGetValue(code, out kind) ? kind : otherwise;
        }

        internal string Url { get { return target; } }
        internal long Backoff(int n) { return Transport.Backoff(o.BackoffBase, o.BackoffMax, n); }

        static string Check(string queue)
        {
            if (!string.IsNullOrEmpty(queue) && Transport.ValidName(queue[0] == '-' ? "a" + queue.Substring(1) : queue, 255)) return queue;
            throw new SpillwayException(ErrorKind.Invalid, "a queue is 1 to 255 letters, digits, ._- and begins with neither . nor _") { Code = "bad_queue" };
        }

        static Job Read(string text)
        {
            var said = Json.Members(text);
            var attributes = Json.Members(Json.Of(said, "attributes"));
            var job = new Job
            {
                Queue = Json.Text(Json.Of(said, "queue")), Id = Json.Text(Json.Of(said, "id")), State = Json.Text(Json.Of(said, "state")) ?? "",
                Reason = Json.Text(Json.Of(said, "reason")) ?? "", Attempt = Json.Of(said, "attempt") == null ? 0 : (int)Json.Whole(said, "attempt", -1), Tries = (int)Json.Whole(said, "tries", -1),
                Progress = (int)Json.Whole(said, "progress", -1), Note = Json.Text(Json.Of(said, "note")) ?? "",
                Result = Json.Of(said, "result") ?? "", AckedMs = Json.Whole(said, "acked_ms", 0),
                PublishedMs = Json.Whole(said, "published_ms", 0), ExpiresMs = Json.Whole(said, "expires_ms", 0),
            };
            job.TTR = TimeSpan.FromMilliseconds(Json.Whole(said, "ttr_ms", 60000));
            var deadline = Json.Whole(said, "deadline_ms", 0);
            if (deadline > 0) job.Deadline = deadline.ToString(CultureInfo.InvariantCulture);
            if (string.IsNullOrEmpty(job.Id) || job.Attempt < 0 || job.Tries < 0) throw SpillwayException.Foreign();
            if (attributes != null) foreach (var a in attributes) job.Attributes[Json.Text("\"" + a.Key + "\"")] = Json.Text(a.Value) ?? "";
            try { job.Payload = Convert.FromBase64String(Json.Text(Json.Of(said, "data")) ?? ""); } catch (FormatException) { throw SpillwayException.Foreign(); }
            return job;
        }

        // Do makes attempts until one is answered for good. Those with a key end before the service forgets it.
        async Task<string> Do(Call c, CancellationToken token)
        {
            var attempts = c.Attempts > 0 ? c.Attempts : o.Attempts;
            var forgotten = long.MaxValue;
            token.ThrowIfCancellationRequested();
            for (var attempt = 1; ; attempt++)
            {
                var sent = Transport.Clock();
                SpillwayException error;
                try
                {
                    var timeout = c.Timeout > 0 ? c.Timeout : (long)o.Timeout.TotalMilliseconds + c.Wait;
                    return await Post(c, Math.Max(Math.Min(timeout, forgotten - sent), 1), token).ConfigureAwait(false);
                }
                catch (SpillwayException e) { error = e; }
                if (!error.Temporary || error.Status == 200) throw error;
                if (error.Kind == ErrorKind.Unknown && !c.Maybe)
                {
                    c.Maybe = true;
                    if (c.Key != null) forgotten = sent + c.KeyMs / 12 * 11;
                }
                if (c.Maybe) error.Kind = ErrorKind.Unknown; // whatever this attempt came to
                var wait = Math.Max(Backoff(attempt), (long)error.RetryAfter.TotalMilliseconds);
                if (attempt >= attempts || Transport.Clock() + wait > forgotten || !await Transport.Sleep(wait, token).ConfigureAwait(false)) throw error;
            }
        }

        async Task<string> Post(Call c, long timeout, CancellationToken token)
        {
            using (var limit = CancellationTokenSource.CreateLinkedTokenSource(token))
            {
                limit.CancelAfter((int)Math.Min(timeout, int.MaxValue));
                using (var r = await Send(c, limit.Token).ConfigureAwait(false))
                    return r.Content == null ? "" : await r.Content.ReadAsStringAsync().ConfigureAwait(false);
            }
        }

        // Send sends a request, and ends with an answer that says yes.
        async Task<HttpResponseMessage> Send(Call c, CancellationToken token)
        {
            using (var m = new HttpRequestMessage(c.Method, target + c.Path + (c.Query.Count > 0 ? "?" + string.Join("&", c.Query) : "")))
            {
                try
                {
                    if (c.Method == HttpMethod.Post) m.Content = new ByteArrayContent(c.Body ?? new byte[0]);
                    if (c.Type != null) m.Content.Headers.ContentType = new MediaTypeHeaderValue(c.Type);
                    m.Headers.ExpectContinue = false;
                    if (c.Key != null) m.Headers.TryAddWithoutValidation("Idempotency-Key", c.Key);
                    if (!string.IsNullOrEmpty(o.Token)) m.Headers.TryAddWithoutValidation("Authorization", "Bearer " + o.Token);
                    var r = await http.SendAsync(m, token).ConfigureAwait(false);
                    if ((int)r.StatusCode == 200 || (int)r.StatusCode == 201) return r;
                    using (r) throw Refused(r, r.Content == null ? "" : await r.Content.ReadAsStringAsync().ConfigureAwait(false));
                }
                catch (SpillwayException) { throw; }
                catch (Exception e) { throw NotAnswered(e); }
            }
        }

        // NotAnswered is the error of a request without an answer: of the network, in all the forms it has.
        internal static SpillwayException NotAnswered(Exception e)
        {
            var nothing = false;
            for (var cause = e; cause != null; cause = cause.InnerException)
            {
                var web = cause as System.Net.WebException;
                var socket = cause as System.Net.Sockets.SocketException;
                nothing |= web != null && (web.Status == System.Net.WebExceptionStatus.ConnectFailure || web.Status == System.Net.WebExceptionStatus.NameResolutionFailure) ||
                    socket != null && (socket.SocketErrorCode == System.Net.Sockets.SocketError.ConnectionRefused || socket.SocketErrorCode == System.Net.Sockets.SocketError.HostNotFound);
            }
            return new SpillwayException(nothing ? ErrorKind.Unavailable : ErrorKind.Unknown, e.GetBaseException().Message, e);
        }

        // Refused is the error of an answer that says no.
        internal static SpillwayException Refused(HttpResponseMessage r, string text)
        {
            var said = Json.Members(text);
            var status = (int)r.StatusCode;
            var code = Json.Text(Json.Of(said, "error")) ?? "";
            var kind = KindOf(code, status == 429 ? ErrorKind.RateLimited : status < 500 ? ErrorKind.Invalid : ErrorKind.Unknown);
            if (Json.Text(Json.Of(said, "outcome")) == "unknown") kind = ErrorKind.Unknown;
            var message = code == "" ? "the service answered " + status : code + ": " + Json.Text(Json.Of(said, "message"));
            return new SpillwayException(kind, message) { Code = code, Status = status, RetryAfter = TimeSpan.FromMilliseconds(Transport.RetryAfter(r)) };
        }
    }

    /// <summary>How a Worker works. Every default is that of the Go client.</summary>
    public sealed class WorkerOptions
    {
        /// <summary>Handlers that run at once.</summary>
        public int Concurrency = 1;
        /// <summary>How long a job is leased; zero: as a rule for the queue says, or a minute. The lease is prolonged each third of it while the handler runs.</summary>
        public TimeSpan TTR;
        /// <summary>How long a request waits for jobs.</summary>
        public TimeSpan Wait = TimeSpan.FromSeconds(30);
        /// <summary>Bounds of the random time that a job waits after its handler failed.</summary>
        public TimeSpan BackoffBase = TimeSpan.FromSeconds(1), BackoffMax = TimeSpan.FromMinutes(10);
        /// <summary>How long handlers may go on after StopAsync. Then their tokens are cancelled.</summary>
        public TimeSpan StopTimeout = TimeSpan.FromSeconds(30);
        /// <summary>How long it goes on while the service rejects its token or namespace; for ever by default.</summary>
        public TimeSpan GiveUpAfter = TimeSpan.MaxValue;
        /// <summary>Told of each handler and each settlement that failed, and of each claim that failed, on any thread. Without OnRequestError, Console.Error is, of each kind of failure once a minute at most.</summary>
        public Action<Job, Exception> OnError;
        public Action<Exception> OnRequestError;
    }

    /// <summary>
    /// Claims jobs and gives each to a handler. One that ends acks, and what it ends with, as a Task of a string, is the job's
    /// result: what is not JSON of 4 KiB at most is told to OnError, and left out. One that throws nacks with a back-off, or does what
    /// PermanentException, RetryInException, DeferredException or NotBegunException say. Its token is cancelled when the
    /// lease is lost, or StopTimeout after StopAsync; Job.Cause says why.
    /// </summary>
    public sealed class Worker
    {
        sealed class Lease
        {
            public Job Job;
            public readonly CancellationTokenSource Told = new CancellationTokenSource();
            public Timer Timer;
            public long TTR, Until; // ms, ms of Clock
            public int Failures;
            public bool Ended;
        }

        sealed class Ending
        {
            public Job Job;
            public string Line;
            public readonly TaskCompletionSource<bool> Done = Transport.Promise();
        }

        const int LastSettle = 2000; // ms, of a worker without patience
        readonly Guest ofJobs = new Guest(), ofClaims = new Guest();

        readonly Queues queues;
        readonly IList<string> names;
        readonly Func<Job, CancellationToken, Task> handle;
        readonly WorkerOptions o;
        readonly CancellationTokenSource stopped = new CancellationTokenSource(), over = new CancellationTokenSource();

        readonly object gate = new object(); // for all that follows
        readonly HashSet<Lease> leases = new HashSet<Lease>();
        readonly Dictionary<string, List<Ending>> endings = new Dictionary<string, List<Ending>>();
        TaskCompletionSource<bool> freed = Transport.Promise();
        Task running;

        public Worker(Queues queues, IList<string> names, Func<Job, CancellationToken, Task> handle, WorkerOptions options = null)
        {
            o = options ?? new WorkerOptions();
            if (o.Concurrency < 1 || o.TTR < TimeSpan.Zero || o.Wait < TimeSpan.FromMilliseconds(1) || o.StopTimeout < TimeSpan.Zero || o.BackoffBase < TimeSpan.Zero || o.BackoffMax < o.BackoffBase)
                throw new ArgumentException("spillway: the concurrency or a duration is out of range", "options");
            this.queues = queues;
            this.names = names;
            this.handle = handle;
        }

        /// <summary>Works until StopAsync, and ends when the handlers have. Throws if the service rejects its requests.</summary>
        public Task RunAsync() { lock (gate) return running ?? (running = Task.Run(() => Run())); }

        /// <summary>Claims no more, and ends as RunAsync does.</summary>
        public Task StopAsync()
        {
            stopped.Cancel();
            return RunAsync();
        }

        async Task Run()
        {
            var failed = await Claim().ConfigureAwait(false);
            stopped.Cancel();
            using (var ended = new CancellationTokenSource())
            {
                var patience = Patience(ended.Token);
                while (await Busy(1, CancellationToken.None).ConfigureAwait(false)) { }
                ended.Cancel();
                await patience.ConfigureAwait(false);
            }
            if (failed != null) throw failed;
        }

        async Task Patience(CancellationToken ended)
        {
            if (!await Transport.Sleep((long)Math.Min(o.StopTimeout.TotalMilliseconds, int.MaxValue), ended).ConfigureAwait(false)) return;
            over.Cancel();
            List<Lease> left;
            lock (gate) left = new List<Lease>(leases);
            foreach (var l in left) Tell(l, Cause.Stopped);
        }

        // Busy waits for a change while so many leases are held; false: fewer are, or it is to stop.
        async Task<bool> Busy(int n, CancellationToken stop)
        {
            Task next;
            lock (gate)
            {
                if (leases.Count < n) return false;
                next = freed.Task;
            }
            using (stop.Register(Free)) await next.ConfigureAwait(false);
            return !stop.IsCancellationRequested;
        }

        void Free()
        {
            TaskCompletionSource<bool> before;
            lock (gate)
            {
                before = freed;
                freed = Transport.Promise();
            }
            before.TrySetResult(true);
        }

        // Claim claims as long as handlers may run, one request at a time, and returns what ended it.
        async Task<SpillwayException> Claim()
        {
            var told = o.OnRequestError ?? Transport.Warner(queues.Url);
            long barred = -1; // since when the service has rejected the token or the namespace
            for (var failures = 0; ;)
            {
                while (await Busy(o.Concurrency, stopped.Token).ConfigureAwait(false)) { }
                if (stopped.IsCancellationRequested) return null;
                int free;
                lock (gate) free = Math.Min(o.Concurrency - leases.Count, 1000);
                SpillwayException error;
                try
                {
                    var jobs = await queues.Claim(names, new ClaimOptions { Count = free, TTR = o.TTR, Wait = o.Wait }, 1, stopped.Token).ConfigureAwait(false);
                    foreach (var job in jobs) Begin(job);
                    failures = 0;
                    barred = -1;
                    continue;
                }
                catch (OperationCanceledException) { return null; }
                catch (SpillwayException e) { error = e; }
                if (stopped.IsCancellationRequested) return null;
                ofClaims.Call(() => told(error));
                if (!error.Barred) barred = -1;
                else if (barred < 0) barred = Transport.Clock();
                if (barred < 0 && !error.Temporary || barred >= 0 && Transport.Clock() - barred >= o.GiveUpAfter.TotalMilliseconds) return error;
                failures++;
                await Transport.Sleep(Math.Max(Math.Max(queues.Backoff(failures), (long)error.RetryAfter.TotalMilliseconds), 1), stopped.Token).ConfigureAwait(false);
            }
        }

        void Begin(Job job)
        {
            var l = new Lease { Job = job, TTR = (long)job.TTR.TotalMilliseconds };
            l.Until = Transport.Clock() + l.TTR;
            lock (gate) leases.Add(l);
            Task.Run(() => Work(l));
        }

        // Work gives a job to the handler, and tells the service what became of it.
        async Task Work(Lease l)
        {
            string line;
            if (stopped.IsCancellationRequested) line = Queues.Line(l.Job, "requeue"); // it came with the last answer
            else
            {
                lock (gate) l.Timer = new Timer(_ => Touch(l), null, Math.Max(l.TTR / 3, 1), -1);
                try
                {
                    var handling = handle(l.Job, l.Told.Token);
                    await handling.ConfigureAwait(false);
                    line = Done(l.Job, handling as Task<string>);
                }
                catch (Exception e) { line = Failed(l, e); }
                lock (gate) l.Ended = true;
                l.Timer.Dispose();
            }
            if (line != null) await Settle(l.Job, line).ConfigureAwait(false);
            lock (gate) leases.Remove(l);
            Free();
        }

        // Done is an ack, which also counts after the lease.
        string Done(Job job, Task<string> result)
        {
            try { return Queues.Line(job, "ack", more: Queues.ResultOf(result == null ? null : result.Result)); }
            catch (SpillwayException e) { Report(job, e); }
            return Queues.Line(job, "ack");
        }

        string Failed(Lease l, Exception error)
        {
            var deferred = error as DeferredException;
            var retry = error as RetryInException;
            if (deferred == null && !(error is NotBegunException)) Report(l.Job, error);
            if (l.Job.Cause == Cause.LeaseLost) return null;
            if (error is NotBegunException) return Queues.Line(l.Job, "requeue");
            if (deferred != null) return Queues.Line(l.Job, "defer", deferred.TTR);
            if (error is PermanentException) return Queues.Line(l.Job, "bury", TimeSpan.Zero, Guest.Text(error));
            if (l.Job.Cause == Cause.Stopped && retry == null) return Queues.Line(l.Job, "requeue"); // which is not the job's fault
            var after = TimeSpan.FromMilliseconds(Transport.Backoff(o.BackoffBase, o.BackoffMax, l.Job.Attempt));
            return Queues.Line(l.Job, "nack", retry != null ? retry.After : after, Guest.Text(error));
        }

        void Report(Job job, Exception error)
        {
            if (o.OnError != null) ofJobs.Call(() => o.OnError(job, error));
        }

        void Tell(Lease l, Cause cause)
        {
            if (Interlocked.CompareExchange(ref l.Job.cause, (int)cause, (int)Cause.None) != (int)Cause.None) return;
            try { l.Told.Cancel(); } catch (AggregateException) { } // a handler's callback's fault
        }

        // Touch prolongs a lease, until its handler has ended or was told to. One request that hangs must not take the time of all.
        async Task Touch(Lease l)
        {
            if (l.Told.IsCancellationRequested) return;
            long sent = Transport.Clock(), ttr = l.TTR, wait;
            if (sent >= l.Until)
            {
                Tell(l, Cause.LeaseLost);
                return;
            }
            try
            {
                await queues.Touch(l.Job, l.Job.TTR, CancellationToken.None, 1, Math.Max(Math.Min(l.Until - sent, ttr / 3), 1)).ConfigureAwait(false);
                lock (gate)
                {
                    l.Failures = 0;
                    l.Until = sent + ttr;
                }
                wait = ttr / 3 - (Transport.Clock() - sent);
            }
            catch (SpillwayException e)
            {
                if (e.Kind == ErrorKind.Gone)
                {
                    Tell(l, Cause.LeaseLost);
                    return;
                }
                wait = Math.Min(Math.Max(queues.Backoff(++l.Failures), 1), l.Until - Transport.Clock());
            }
            lock (gate) if (!l.Ended) l.Timer.Change(Math.Max(wait, 0), -1);
        }

        // Settle ends when the service has answered, or the worker has run out of patience.
        Task Settle(Job job, string line)
        {
            var e = new Ending { Job = job, Line = line };
            lock (gate)
            {
                List<Ending> list;
                if (!endings.TryGetValue(job.Queue, out list))
                {
                    endings[job.Queue] = list = new List<Ending>();
                    Task.Run(() => Settler(job.Queue, list));
                }
                list.Add(e);
            }
            return e.Done.Task;
        }

        // Settler settles the jobs of one queue in one request at a time: what ends during one goes together in the next.
        async Task Settler(string queue, List<Ending> list)
        {
            for (var failures = 0; ;)
            {
                List<Ending> batch;
                lock (gate)
                {
                    if (list.Count == 0)
                    {
                        endings.Remove(queue);
                        return;
                    }
                    batch = new List<Ending>(list);
                    list.Clear();
                }
                var again = await Send(queue, batch).ConfigureAwait(false);
                lock (gate) list.InsertRange(0, again);
                if (again.Count == 0) failures = 0;
                else await Transport.Sleep(Math.Max(queues.Backoff(++failures), 1), over.Token).ConfigureAwait(false);
            }
        }

        // Send sends endings once, and returns those to be sent again.
        async Task<List<Ending>> Send(string queue, List<Ending> batch)
        {
            var last = over.IsCancellationRequested;
            var errors = new SpillwayException[batch.Count];
            Exception failed = null;
            using (var limit = last ? new CancellationTokenSource(LastSettle) : CancellationTokenSource.CreateLinkedTokenSource(over.Token))
            {
                try { errors = await queues.SettleAll(queue, batch.ConvertAll(e => e.Line), limit.Token).ConfigureAwait(false); }
                catch (OperationCanceledException e) { failed = e; }
                catch (SpillwayException e) { failed = e; }
            }
            var said = failed as SpillwayException;
            if (said != null && said.Kind == ErrorKind.TooLarge && batch.Count > 1)
            {
                var left = await Send(queue, batch.GetRange(0, batch.Count / 2)).ConfigureAwait(false);
                left.AddRange(await Send(queue, batch.GetRange(batch.Count / 2, batch.Count - batch.Count / 2)).ConfigureAwait(false));
                return left;
            }
            var again = new List<Ending>();
            for (var i = 0; i < batch.Count; i++)
            {
                var error = failed ?? errors[i];
                said = error as SpillwayException;
                if (error != null && (said == null || said.Kind != ErrorKind.Gone))
                {
                    Report(batch[i].Job, error);
                    if (!last && (said == null || said.Temporary || said.Barred))
                    {
                        again.Add(batch[i]);
                        continue;
                    }
                }
                batch[i].Done.TrySetResult(true);
            }
            return again;
        }
    }

    /// <summary>Calls callbacks of the program, whose exceptions are its own: the first is written to Console.Error.</summary>
    sealed class Guest
    {
        int told;

        public void Call(Action callback)
        {
            try { callback(); }
            catch (Exception e)
            {
                if (Interlocked.Exchange(ref told, 1) == 0) Console.Error.WriteLine("spillway: a callback threw, which is told once: " + e.GetType() + ": " + Text(e) + "\n" + e.StackTrace);
            }
        }

        /// <summary>What an exception of the program says, whatever its class does.</summary>
        public static string Text(Exception e)
        {
            try { return e.Message ?? ""; } catch (Exception) { return e.GetType().Name; }
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

        /// <summary>The hook of a program that gives none: it writes each kind of failure, once a minute at most.</summary>
        public static Action<Exception> Warner(string url)
        {
            var last = new Dictionary<ErrorKind, long>();
            return error =>
            {
                var kind = ((SpillwayException)error).Kind;
                long at, now = Clock();
                lock (last)
                {
                    if (last.TryGetValue(kind, out at) && now - at < 60000) return;
                    last[kind] = now;
                }
                Console.Error.WriteLine("a request to " + url + " failed: " + error.Message);
            };
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

        /// <summary>A member as it is written; null: there is none.</summary>
        public static string Of(Dictionary<string, string> members, string name)
        {
            string value;
            return members != null && members.TryGetValue(name, out value) ? value : null;
        }

        /// <summary>A member that is a whole number from 0 on, or otherwise.</summary>
        public static long Whole(Dictionary<string, string> members, string name, long otherwise)
        {
            long n;
            return long.TryParse(Of(members, name) ?? "", NumberStyles.None, CultureInfo.InvariantCulture, out n) ? n : otherwise;
        }

        /// <summary>The elements of an array as they are written; null for another text.</summary>
        public static List<string> Items(string text)
        {
            var list = Values(text ?? "", '[', ']');
            return list == null ? null : list.ConvertAll(item => item.Value);
        }

        /// <summary>What a string says; null for another text.</summary>
        public static string Text(string text)
        {
            if (string.IsNullOrEmpty(text) || text[0] != '"') return null;
            var b = new StringBuilder(text.Length);
            for (var i = 1; i < text.Length - 1; i++)
            {
                if (text[i] != '\\') b.Append(text[i]);
                else if (text[++i] != 'u')
                {
                    var at = "bfnrt".IndexOf(text[i]);
                    b.Append(at < 0 ? text[i] : "\b\f\n\r\t"[at]);
                }
                else
                {
                    b.Append((char)int.Parse(text.Substring(i + 1, 4), NumberStyles.HexNumber, CultureInfo.InvariantCulture));
                    i += 4;
                }
            }
            return b.ToString();
        }

        /// <summary>A text as a string.</summary>
        public static string Quote(string text)
        {
            var b = new StringBuilder("\"");
            foreach (var c in text)
            {
                if (c == '"' || c == '\\') b.Append('\\').Append(c);
                else if (c < ' ') b.Append("\\u").Append(((int)c).ToString("x4", CultureInfo.InvariantCulture));
                else b.Append(c);
            }
            return b.Append('"').ToString();
        }

        static bool Whole(string text, int most, out int n)
        {
            return int.TryParse(text, NumberStyles.None, CultureInfo.InvariantCulture, out n) && n <= most;
        }

        // Members are the values of an object by name, as they are written; null for another text.
        public static Dictionary<string, string> Members(string text)
        {
            var list = Values(text ?? "", '{', '}');
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
