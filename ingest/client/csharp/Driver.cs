// Drives the client for the conformance suites: a command a line, an answer a line.
using System;
using System.Collections.Generic;
using System.Net;
using System.Net.Sockets;
using System.Text;
using System.Text.RegularExpressions;
using System.Threading;
using System.Threading.Tasks;
using Spillway;

static class Driver
{
    static Dictionary<string, string> command, options;
    static Reporter reporter;
    static Queues queues;
    static Worker worker;
    static Task ended;

    static readonly object gate = new object(); // for all that follows
    static Dictionary<string, int> calls;
    static List<string> handled;
    static int running, most, errors, requestErrors;

    static string Text(string name) { return Json.Text(Json.Of(command, name)) ?? ""; }

    static string Option(string name) { return Json.Text(Json.Of(options, name)) ?? ""; }

    static int Whole(string name, int otherwise) { return (int)Json.Whole(options, name, otherwise); }

    static TimeSpan Ms(string name, TimeSpan otherwise) { return TimeSpan.FromMilliseconds(Json.Whole(options, name, (long)Math.Min(otherwise.TotalMilliseconds, long.MaxValue / 1e6))); }

    static List<string> Texts(string name) { return Json.Items(Json.Of(command, name)).ConvertAll(Json.Text); }

    // Warm sends a report to nobody in particular: Mono compiles on the first use, which takes seconds on a busy machine, and cases count.
    static void Warm()
    {
        var server = new TcpListener(IPAddress.Loopback, 0);
        server.Start();
        var client = new Reporter("http://" + server.LocalEndpoint, new ReporterOptions { Timeout = TimeSpan.FromMinutes(1) });
        client.Report("warm", "1");
        var sent = client.FlushAsync(TimeSpan.FromMinutes(1));
        using (var connection = server.AcceptTcpClient())
        {
            var stream = connection.GetStream();
            for (var seen = ""; !seen.Contains("\"data\":1}]");) seen += (char)stream.ReadByte();
            var answer = Encoding.ASCII.GetBytes("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            stream.Write(answer, 0, answer.Length);
            sent.Wait();
        }
        server.Stop();
        client.Dispose();
    }

    static void Main()
    {
        Warm();
        string line;
        while ((line = Console.In.ReadLine()) != null)
        {
            command = Json.Members(line);
            options = Json.Members(Json.Of(command, "options"));
            string answer;
            try { answer = Run(Text("op")).GetAwaiter().GetResult(); }
            catch (SpillwayException e) { answer = "{\"error\":\"" + Regex.Replace(e.Kind.ToString(), "(?<!^)([A-Z])", "_$1").ToLowerInvariant() + "\"}"; }
            if (answer != null) Console.WriteLine(answer);
        }
    }

    static async Task<string> Run(string op)
    {
        var timeout = TimeSpan.FromMilliseconds(Json.Whole(command, "timeout", 0));
        switch (op)
        {
            case "open": Open(); break;
            case "report":
                var at = Json.Whole(command, "at", 0);
                reporter.Report(Text("partition"), Convert.FromBase64String(Text("payload")), at > 0 ? DateTimeOffset.FromUnixTimeMilliseconds(at) : DateTimeOffset.UtcNow);
                return null;
            case "flush": return Ok(await reporter.FlushAsync(timeout));
            case "close": return Ok(await reporter.CloseAsync(timeout));
            case "counts": return Text("queue") == "" ? Stats() : Count(await queues.CountsAsync(Text("queue")));
            case "queues":
                var q = new QueuesOptions { Namespace = Option("namespace"), Token = Option("token") };
                q.Attempts = Whole("attempts", q.Attempts);
                q.Timeout = Ms("timeout", q.Timeout);
                q.BackoffBase = Ms("backoff_base", q.BackoffBase);
                q.BackoffMax = Ms("backoff_max", q.BackoffMax);
                queues = new Queues(Text("url"), q);
                break;
            case "publish": return await Publish();
            case "claim":
                var c = new ClaimOptions();
                c.Count = Whole("count", c.Count);
                c.TTR = Ms("ttr", c.TTR);
                c.Wait = Ms("wait", c.Wait);
                return "{\"jobs\":[" + string.Join(",", (await queues.ClaimAsync(Texts("queues"), c)).ConvertAll(Shown)) + "]}";
            case "settle": await Settle(); break;
            case "get":
                var wait = Ms("wait", TimeSpan.Zero);
                return "{\"jobs\":[" + Shown(await (wait > TimeSpan.Zero ? queues.WaitAsync(Text("queue"), Text("id"), wait) : queues.GetAsync(Text("queue"), Text("id")))) + "]}";
            case "delete": await queues.DeleteAsync(Text("queue"), Text("id")); break;
            case "work": Work(); break;
            case "worked":
                lock (gate) return "{\"running\":" + running + ",\"most\":" + most + ",\"errors\":" + errors + ",\"request_errors\":" + requestErrors + ",\"handled\":[" + string.Join(",", handled) + "]}";
            case "stop": await worker.StopAsync(); break;
            case "wait": await ended; break;
        }
        return "{}";
    }

    static string Ok(bool ok) { return ok ? "{\"ok\":true}" : "{\"ok\":false}"; }

    static void Open()
    {
        var o = new ReporterOptions { Token = Option("token") };
        o.Batch = Whole("batch", o.Batch);
        o.Queue = Whole("queue", o.Queue);
        o.Attempts = Whole("attempts", o.Attempts);
        o.BreakAfter = Whole("break_after", o.BreakAfter);
        o.Linger = Ms("linger", o.Linger);
        o.MaxAge = Ms("max_age", o.MaxAge);
        o.Timeout = Ms("timeout", o.Timeout);
        o.BackoffBase = Ms("backoff_base", o.BackoffBase);
        o.BackoffMax = Ms("backoff_max", o.BackoffMax);
        o.ProbeEvery = Ms("probe_every", o.ProbeEvery);
        o.KeyWindow = Ms("key_window", o.KeyWindow);
        if (Json.Of(options, "throw_hooks") != null)
        {
            int drops = 0, failures = 0;
            o.OnDrop = (why, n) => Hook("drop_hook", ref drops);
            o.OnError = e => Hook("error_hook", ref failures);
        }
        reporter = new Reporter(Text("url"), o);
    }

    static void Hook(string name, ref int calls)
    {
        Console.Error.WriteLine(name + " " + ++calls);
        throw new InvalidOperationException("fault " + calls + " of " + name);
    }

    static string Stats()
    {
        var s = reporter.Stats();
        var dropped = new List<string>();
        foreach (var d in s.Dropped) dropped.Add("\"" + d.Key + "\":" + d.Value);
        return "{\"reported\":" + s.Reported + ",\"acked\":" + s.Acked + ",\"pending\":" + s.Pending + ",\"dropped\":{" + string.Join(",", dropped) + "}}";
    }

    static string Count(Counts n) { return "{\"ready\":" + n.Ready + ",\"delayed\":" + n.Delayed + ",\"leased\":" + n.Leased + ",\"dead\":" + n.Dead + "}"; }

    static string Shown(Job j)
    {
        return "{\"queue\":" + Json.Quote(j.Queue) + ",\"id\":" + Json.Quote(j.Id) + ",\"state\":" + Json.Quote(j.State) + ",\"attempt\":" + j.Attempt + ",\"tries\":" + j.Tries + ",\"progress\":" + j.Progress +
            ",\"note\":" + Json.Quote(j.Note) + ",\"result\":" + (j.Result == "" ? "null" : j.Result) + ",\"payload\":\"" + Convert.ToBase64String(j.Payload) + "\"}";
    }

    static async Task<string> Publish()
    {
        var o = new PublishOptions
        {
            Delay = Ms("delay", TimeSpan.Zero), TTL = Ms("ttl", TimeSpan.Zero), Tries = Whole("tries", 0), Shards = Whole("shards", 0), Id = Option("id"), Key = Option("key"),
            Dedup = Ms("dedup", TimeSpan.Zero), OnEnd = Option("on_end"), Unique = Ms("unique", TimeSpan.Zero), UniqueKey = Option("unique_key"), OnConflict = Option("on_conflict"),
        };
        var at = Json.Whole(options, "at", 0);
        if (at > 0) o.At = DateTimeOffset.FromUnixTimeMilliseconds(at);
        foreach (var a in Json.Members(Json.Of(options, "attributes")) ?? new Dictionary<string, string>()) o.Attributes[a.Key] = Json.Text(a.Value);
        var payloads = Texts("payloads").ConvertAll(Convert.FromBase64String);
        var p = payloads.Count == 1 ? await queues.PublishAsync(Text("queue"), payloads[0], o) : await queues.PublishManyAsync(Text("queue"), payloads, o);
        return "{\"ids\":[\"" + string.Join("\",\"", p.Ids) + "\"],\"repeated\":" + (p.Repeated ? "true" : "false") + ",\"exists\":" + (p.Exists ? "true" : "false") + ",\"changed\":" + (p.Changed ? "true" : "false") + "}";
    }

    static Task Settle()
    {
        var job = new Job { Queue = Text("queue"), Id = Text("id"), Attempt = (int)Json.Whole(command, "attempt", 0) };
        var negative = (Json.Of(command, "ms") ?? "").StartsWith("-");
        var after = TimeSpan.FromMilliseconds(negative ? -1 : Json.Whole(command, "ms", 0));
        var error = Text("error") == "" ? null : Text("error");
        switch (Text("do"))
        {
            case "ack": return queues.AckAsync(job, Json.Of(command, "result"));
            case "nack": return queues.NackAsync(job, after, error);
            case "bury": return queues.BuryAsync(job, error);
            case "requeue": return queues.RequeueAsync(job);
            case "progress": return queues.ProgressAsync(job, (int)Json.Whole(command, "progress", 0), Text("note"), after);
            default: return queues.TouchAsync(job, after);
        }
    }

    static void Work()
    {
        calls = new Dictionary<string, int>();
        handled = new List<string>();
        running = most = errors = requestErrors = 0;
        var throws = Json.Of(options, "throw_hooks") != null;
        var o = new WorkerOptions { OnError = (job, e) => Count(ref errors, throws, "job_hook") };
        if (Json.Of(options, "no_hook") == null) o.OnRequestError = e => Count(ref requestErrors, throws, "claim_hook");
        o.Concurrency = Whole("concurrency", o.Concurrency);
        o.TTR = Ms("ttr", o.TTR);
        o.Wait = Ms("wait", o.Wait);
        o.BackoffBase = Ms("backoff_base", o.BackoffBase);
        o.BackoffMax = Ms("backoff_max", o.BackoffMax);
        o.StopTimeout = Ms("stop_timeout", o.StopTimeout);
        o.GiveUpAfter = Ms("give_up_after", o.GiveUpAfter);
        worker = new Worker(queues, Texts("queues"), Handle, o);
        ended = worker.RunAsync();
    }

    static void Count(ref int calls, bool throws, string hook)
    {
        lock (gate)
        {
            calls++;
            if (throws) throw new InvalidOperationException("fault " + calls + " of " + hook);
        }
    }

    sealed class Unspeakable : OutOfMemoryException
    {
        public override string Message { get { throw new InvalidOperationException("no text"); } }
    }

    static async Task<string> Handle(Job job, CancellationToken token)
    {
        var act = Json.Members(job.Text());
        var what = Json.Text(Json.Of(act, "do"));
        lock (gate)
        {
            int n;
            calls.TryGetValue(job.Id, out n);
            calls[job.Id] = ++n;
            if (n > Json.Whole(act, "attempts", 0)) what = "ok";
            most = Math.Max(most, ++running);
        }
        try { return await Act(what, TimeSpan.FromMilliseconds(Json.Whole(act, "ms", 0)), token); }
        finally
        {
            var cause = job.Cause == Cause.LeaseLost ? "lease_lost" : job.Cause == Cause.Stopped ? "stopped" : "";
            lock (gate)
            {
                running--;
                handled.Add("{\"queue\":" + Json.Quote(job.Queue) + ",\"id\":" + Json.Quote(job.Id) + ",\"attempt\":" + job.Attempt + ",\"cause\":\"" + cause + "\"}");
            }
        }
    }

    static async Task<string> Act(string what, TimeSpan ms, CancellationToken token)
    {
        switch (what)
        {
            case "fail": throw new InvalidOperationException("as the payload says");
            case "throw": throw new Unspeakable();
            case "permanent": throw new PermanentException("for good");
            case "retry": throw new RetryInException("busy", ms);
            case "not_begun":
                await Task.Delay(ms);
                throw new NotBegunException();
            case "sleep": await Task.Delay(ms); break;
            case "hang": await Task.Delay(Timeout.Infinite, token); break;
            case "result": return "{\n\"done\": true\n}";
            case "bad_result": return "sent";
            case "big_result": return "\"" + new string('x', 5000) + "\"";
        }
        return null;
    }
}
