// Drives the client for the conformance suite: a command a line, an answer a line.
using System;
using System.Collections.Generic;
using System.Text.RegularExpressions;

static class Driver
{
    static string line;

    static string Text(string name) { return Regex.Unescape(Regex.Match(line, "\"" + name + "\":\"((?:[^\"\\\\]|\\\\.)*)\"").Groups[1].Value); }

    static int Whole(string name, int otherwise)
    {
        var m = Regex.Match(line, "\"" + name + "\":(\\d+)");
        return m.Success ? int.Parse(m.Groups[1].Value) : otherwise;
    }

    static DateTimeOffset At()
    {
        var m = Regex.Match(line, "\"at\":(\\d+)");
        return m.Success ? DateTimeOffset.FromUnixTimeMilliseconds(long.Parse(m.Groups[1].Value)) : DateTimeOffset.UtcNow;
    }

    static TimeSpan Ms(string name, TimeSpan otherwise) { return TimeSpan.FromMilliseconds(Whole(name, (int)otherwise.TotalMilliseconds)); }

    static void Main()
    {
        Spillway.Reporter client = null;
        while ((line = Console.In.ReadLine()) != null)
        {
            switch (Text("op"))
            {
                case "open":
                    var o = new Spillway.ReporterOptions { Token = Text("token") };
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
                    client = new Spillway.Reporter(Text("url"), o);
                    Console.WriteLine("{}");
                    break;
                case "report":
                    client.Report(Text("partition"), Convert.FromBase64String(Text("payload")), At());
                    break;
                case "flush":
                    Say(client.FlushAsync(Ms("timeout", TimeSpan.Zero)).Result);
                    break;
                case "close":
                    Say(client.CloseAsync(Ms("timeout", TimeSpan.Zero)).Result);
                    break;
                case "counts":
                    var s = client.Stats();
                    var dropped = new List<string>();
                    foreach (var d in s.Dropped) dropped.Add("\"" + d.Key + "\":" + d.Value);
                    Console.WriteLine("{\"reported\":" + s.Reported + ",\"acked\":" + s.Acked + ",\"pending\":" + s.Pending + ",\"dropped\":{" + string.Join(",", dropped) + "}}");
                    break;
            }
        }
    }

    static void Say(bool ok) { Console.WriteLine(ok ? "{\"ok\":true}" : "{\"ok\":false}"); }
}
