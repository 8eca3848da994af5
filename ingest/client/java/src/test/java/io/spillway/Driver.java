package io.spillway;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;

/** Drives the client for the conformance suites: a command a line, an answer a line. */
public final class Driver {
    private Map<String, Object> line;
    private Map<String, Object> options;
    private Reporter reporter;
    private Queues queues;
    private Worker worker;
    private CompletableFuture<Queues.Failure> ended;
    private final Map<String, Integer> calls = new HashMap<>();
    private final List<String> handled = new ArrayList<>();
    private int running;
    private int most;
    private int errors;
    private int requestErrors;

    /** Reads commands; or measures: bench events|jobs URL N. */
    public static void main(String[] args) throws Exception {
        if (args.length == 4) {
            if (args[1].equals("events")) benchEvents(args[2], Integer.parseInt(args[3]));
            else benchJobs(args[2], Integer.parseInt(args[3]));
            return;
        }
        Driver d = new Driver();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = in.readLine(); text != null; text = in.readLine()) {
            d.line = Reporter.Json.read(text.getBytes(StandardCharsets.UTF_8));
            d.options = Reporter.Json.object(d.line.getOrDefault("options", Map.of()));
            String answer;
            try {
                answer = d.run(d.text("op"));
            } catch (Queues.Failure f) {
                answer = d.failed(f);
            }
            if (answer == null) continue;
            System.out.println(answer);
            System.out.flush();
        }
    }

    private String failed(Queues.Failure f) {
        return f == null ? "{}" : "{\"error\":\"" + f.kind.name().toLowerCase() + "\"}";
    }

    private String text(String name) {
        return (String) line.getOrDefault(name, "");
    }

    private byte[] bytes(Object base64) {
        return Base64.getDecoder().decode((String) base64);
    }

    private int number(String name, int otherwise) {
        return ((Long) options.getOrDefault(name, (long) otherwise)).intValue();
    }

    private Duration ms(String name, Duration otherwise) {
        return options.containsKey(name) ? Duration.ofMillis((Long) options.get(name)) : otherwise;
    }

    @SuppressWarnings("unchecked")
    private String run(String op) {
        Queues.Job job = new Queues.Job(text("queue"), text("id"), ((Long) line.getOrDefault("attempt", 0L)).intValue());
        Duration timeout = Duration.ofMillis((Long) line.getOrDefault("timeout", 0L));
        switch (op) {
            case "open": return open();
            case "report":
                reporter.report(text("partition"), bytes(line.get("payload")),
                        (Long) line.getOrDefault("at", System.currentTimeMillis()), "");
                return null;
            case "flush": return "{\"ok\":" + reporter.flush(timeout) + "}";
            case "close": return "{\"ok\":" + reporter.close(timeout) + "}";
            case "counts": return reporter != null ? counts() : count(queues.counts(text("queue")));
            case "queues": return queues();
            case "publish": return publish((List<Object>) line.get("payloads"));
            case "claim":
                return jobs(queues.claim((List<String>) line.get("queues"), number("count", 0), ms("ttr", null), ms("wait", null)));
            case "settle": return settle(job);
            case "get":
                return jobs(List.of(options.isEmpty() ? queues.get(job.queue, job.id) : queues.wait(job.queue, job.id, ms("wait", null))));
            case "delete":
                queues.delete(job.queue, job.id);
                return "{}";
            case "work": return work();
            case "worked": return worked();
            case "stop":
                worker.stop();
                return failed(ended.join());
            case "wait": return failed(ended.join());
            default: return "{\"error\":\"no such command\"}";
        }
    }

    private String open() {
        Reporter.Config c = new Reporter.Config();
        c.token = (String) options.getOrDefault("token", "");
        c.batch = number("batch", c.batch);
        c.queue = number("queue", c.queue);
        c.attempts = number("attempts", c.attempts);
        c.breakAfter = number("break_after", c.breakAfter);
        c.linger = ms("linger", c.linger);
        c.maxAge = ms("max_age", c.maxAge);
        c.timeout = ms("timeout", c.timeout);
        c.backoffBase = ms("backoff_base", c.backoffBase);
        c.backoffMax = ms("backoff_max", c.backoffMax);
        c.probeEvery = ms("probe_every", c.probeEvery);
        c.keyWindow = ms("key_window", c.keyWindow);
        if (options.containsKey("throw_hooks")) {
            AtomicInteger drops = new AtomicInteger(), failures = new AtomicInteger();
            c.onDrop = (why, n) -> hook(drops, "drop_hook");
            c.onError = e -> hook(failures, "error_hook");
        }
        reporter = new Reporter(text("url"), c);
        return "{}";
    }

    private static void hook(AtomicInteger calls, String name) {
        System.err.println(name + " " + calls.incrementAndGet());
        throw new AssertionError("fault " + calls + " of " + name);
    }

    private String counts() {
        Reporter.Stats s = reporter.stats();
        List<String> dropped = new ArrayList<>();
        s.dropped.forEach((why, n) -> dropped.add("\"" + why + "\":" + n));
        return "{\"reported\":" + s.reported + ",\"acked\":" + s.acked + ",\"pending\":" + s.pending + ",\"dropped\":{"
                + String.join(",", dropped) + "}}";
    }

    private String count(Queues.Counts c) {
        return "{\"ready\":" + c.ready + ",\"delayed\":" + c.delayed + ",\"leased\":" + c.leased + ",\"dead\":" + c.dead + "}";
    }

    private String queues() {
        Queues.Config c = new Queues.Config();
        c.namespace = (String) options.getOrDefault("namespace", c.namespace);
        c.token = (String) options.getOrDefault("token", "");
        c.timeout = ms("timeout", c.timeout);
        c.attempts = number("attempts", c.attempts);
        c.backoffBase = ms("backoff_base", c.backoffBase);
        c.backoffMax = ms("backoff_max", c.backoffMax);
        queues = new Queues(text("url"), c);
        return "{}";
    }

    @SuppressWarnings("unchecked")
    private String publish(List<Object> payloads) {
        Queues.PublishOptions o = new Queues.PublishOptions();
        o.delay = ms("delay", null);
        o.ttl = ms("ttl", null);
        o.dedup = ms("dedup", null);
        o.tries = number("tries", 0);
        o.shards = number("shards", 0);
        if (options.containsKey("at")) o.at = java.time.Instant.ofEpochMilli((Long) options.get("at"));
        o.id = (String) options.getOrDefault("id", "");
        o.key = (String) options.getOrDefault("key", "");
        o.onEnd = (String) options.getOrDefault("on_end", "");
        o.unique = ms("unique", null);
        o.uniqueKey = (String) options.getOrDefault("unique_key", "");
        o.onConflict = (String) options.getOrDefault("on_conflict", "");
        o.attributes = (Map<String, String>) options.getOrDefault("attributes", Map.of());
        List<byte[]> all = new ArrayList<>();
        for (Object p : payloads) all.add(bytes(p));
        Queues.Published p = all.size() == 1 ? queues.publish(text("queue"), all.get(0), o) : queues.publishMany(text("queue"), all, o);
        List<String> ids = new ArrayList<>();
        for (String id : p.ids) ids.add(Reporter.Json.quote(id));
        return "{\"ids\":[" + String.join(",", ids) + "],\"repeated\":" + p.repeated + ",\"exists\":" + p.exists + ",\"changed\":" + p.changed + "}";
    }

    private String jobs(List<Queues.Job> jobs) {
        List<String> all = new ArrayList<>();
        for (Queues.Job j : jobs) {
            all.add(name(j) + ",\"state\":\"" + j.state + "\",\"tries\":" + j.tries + ",\"progress\":" + j.progress + ",\"note\":"
                    + Reporter.Json.quote(j.note) + ",\"result\":" + (j.result.isEmpty() ? "null" : j.result) + ",\"payload\":\""
                    + Base64.getEncoder().encodeToString(j.payload) + "\"}");
        }
        return "{\"jobs\":[" + String.join(",", all) + "]}";
    }

    private String name(Queues.Job j) {
        return "{\"queue\":" + Reporter.Json.quote(j.queue) + ",\"id\":" + Reporter.Json.quote(j.id) + ",\"attempt\":" + j.attempt;
    }

    private String settle(Queues.Job job) {
        Duration after = Duration.ofMillis((Long) line.getOrDefault("ms", 0L));
        switch (text("do")) {
            case "ack":
                queues.ack(job, text("result"));
                break;
            case "nack":
                queues.nack(job, after, text("error"));
                break;
            case "bury":
                queues.bury(job, text("error"));
                break;
            case "requeue":
                queues.requeue(job);
                break;
            case "progress":
                int percent = ((Long) line.getOrDefault("progress", 0L)).intValue();
                if (after.isZero()) queues.progress(job, percent, text("note"));
                else queues.progress(job, percent, text("note"), after);
                break;
            default:
                queues.touch(job, after);
        }
        return "{}";
    }

    @SuppressWarnings("unchecked")
    private String work() {
        Worker.Config c = new Worker.Config();
        c.concurrency = number("concurrency", c.concurrency);
        c.ttr = ms("ttr", c.ttr);
        c.wait = ms("wait", c.wait);
        c.backoffBase = ms("backoff_base", c.backoffBase);
        c.backoffMax = ms("backoff_max", c.backoffMax);
        c.stopTimeout = ms("stop_timeout", c.stopTimeout);
        c.giveUpAfter = ms("give_up_after", null);
        boolean throwing = options.containsKey("throw_hooks");
        c.onError = (job, e) -> {
            count(0, 1, 0);
            if (throwing) throw new AssertionError("fault " + errors + " of job_hook");
        };
        if (!options.containsKey("no_hook")) c.onRequestError = e -> {
            count(0, 0, 1);
            if (throwing) throw new AssertionError("fault " + requestErrors + " of claim_hook");
        };
        Worker w = new Worker(queues, (List<String>) line.get("queues"), this::handle, c);
        CompletableFuture<Queues.Failure> end = new CompletableFuture<>();
        worker = w;
        ended = end;
        new Thread(() -> {
            try {
                w.run();
                end.complete(null);
            } catch (Queues.Failure f) {
                end.complete(f);
            }
        }).start();
        return "{}";
    }

    private synchronized void count(int handlers, int failed, int claims) {
        running += handlers;
        most = Math.max(most, running);
        errors += failed;
        requestErrors += claims;
    }

    private synchronized String worked() {
        return "{\"running\":" + running + ",\"most\":" + most + ",\"errors\":" + errors + ",\"request_errors\":" + requestErrors
                + ",\"handled\":[" + String.join(",", handled) + "]}";
    }

    private synchronized int call(String id) {
        return calls.merge(id, 1, Integer::sum);
    }

    private synchronized void ended(Queues.Job job, Worker.Lease lease) {
        String cause = lease.cause() == null ? "" : lease.cause().name().toLowerCase();
        handled.add(name(job) + ",\"cause\":\"" + cause + "\"}");
    }

    private static final class Unspeakable extends StackOverflowError {
        private static final long serialVersionUID = 1;

        @Override
        public String getMessage() {
            throw new IllegalStateException("no text");
        }
    }

    private String handle(Queues.Job job, Worker.Lease lease) throws Exception {
        Map<String, Object> act = Reporter.Json.object(Reporter.Json.read(job.payload));
        long ms = (Long) act.getOrDefault("ms", 0L);
        count(1, 0, 0);
        String todo = call(job.id) > (Long) act.getOrDefault("attempts", 0L) ? "ok" : (String) act.get("do");
        try {
            switch (todo) {
                case "fail": throw new Exception("as the payload says");
                case "throw": throw new Unspeakable();
                case "permanent": throw new Worker.Permanent("as the payload says");
                case "retry": throw new Worker.RetryIn("as the payload says", Duration.ofMillis(ms));
                case "not_begun":
                    sleep(ms);
                    throw new Worker.NotBegun();
                case "sleep":
                    sleep(ms);
                    return null;
                case "hang":
                    Thread.sleep(Long.MAX_VALUE);
                    return null;
                case "result": return "{\n  \"done\": true\n}";
                case "bad_result": return "sent";
                case "big_result": return "[" + "1,".repeat(5000) + "1]";
                default: return null;
            }
        } finally {
            count(-1, 0, 0);
            ended(job, lease);
        }
    }

    /** Sleeps, whatever happens. */
    private static void sleep(long ms) {
        long end = System.nanoTime() + ms * 1_000_000;
        while (System.nanoTime() < end) {
            try {
                Thread.sleep(Math.max(1, (end - System.nanoTime()) / 1_000_000));
            } catch (InterruptedException e) {
                continue;
            }
        }
    }

    private static long cpuNanos() {
        return ProcessHandle.current().info().totalCpuDuration().orElse(Duration.ZERO).toNanos();
    }

    private static void benchEvents(String url, int n) throws InterruptedException {
        Reporter.Config c = new Reporter.Config();
        c.queue = 100_000;
        try (Reporter r = new Reporter(url, c)) {
            byte[][] laps = new byte[64][];
            for (int i = 0; i < laps.length; i++) laps[i] = ("{\"event\":\"lap\",\"kart\":" + i + ",\"ms\":63210}").getBytes(StandardCharsets.UTF_8);
            long began = 0, cpu = 0;
            for (int i = -n / 2; i < n; i++) { // the first third warms up
                if (i == 0) {
                    r.flush(Duration.ofMinutes(1));
                    cpu = cpuNanos();
                    began = System.nanoTime();
                }
                r.report("kart" + (i & 63), laps[i & 63], System.currentTimeMillis(), "");
                while ((i & 1023) == 0 && r.stats().pending > 20_000) Thread.sleep(1);
            }
            r.flush(Duration.ofMinutes(1));
            long took = System.nanoTime() - began;
            if (r.stats().acked != n + n / 2) throw new IllegalStateException("acked " + r.stats().acked);
            System.out.printf("%.0f %.2f%n", n * 1e9 / took, (cpuNanos() - cpu) / 1e3 / n);
        }
    }

    private static void benchJobs(String url, int n) {
        Worker.Config c = new Worker.Config();
        c.concurrency = 256;
        Worker[] w = new Worker[1];
        long[] done = new long[3];
        w[0] = new Worker(new Queues(url, new Queues.Config()), List.of("welcome"), (job, lease) -> {
            synchronized (done) {
                if (++done[0] == n / 2) {
                    done[1] = System.nanoTime();
                    done[2] = cpuNanos();
                }
                if (done[0] != n / 2 + n) return null;
                System.out.printf("%.0f %.2f%n", n * 1e9 / (System.nanoTime() - done[1]), (cpuNanos() - done[2]) / 1e3 / n);
                w[0].stop();
                return null;
            }
        }, c);
        w[0].run();
    }
}
