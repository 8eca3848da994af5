package io.spillway;

import io.spillway.Reporter.Json;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodySubscriber;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Flow;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * Publishes and claims the jobs of a namespace's queues. It keeps nothing: each call is a request, which throws
 * {@link Failure}. It is safe for several threads. A call that is interrupted fails, and the thread stays interrupted.
 */
public final class Queues {
    /** How a Queues works. */
    public static final class Config {
        /** Of the queues. */
        public String namespace = "default";
        /** Sent as a bearer token; default none. */
        public String token = "";
        /** Bounds one attempt, beyond what a claim waits. */
        public Duration timeout = Duration.ofSeconds(10);
        /** How often a request is tried while the service cannot be reached, is overloaded or limits the rate. */
        public int attempts = 4;
        /** Bounds of the random time between attempts, which is as long as Retry-After says at least. */
        public Duration backoffBase = Duration.ofMillis(100), backoffMax = Duration.ofSeconds(5);
    }

    /** What kind of failure: those of the Go client. */
    public enum Kind {
        NO_JOB, GONE, EMPTY, TOO_LARGE, TOO_MANY_JOBS, TOO_MANY_KEYS, TOO_MANY_QUEUES, INVALID, UNAUTHORIZED, NO_NAMESPACE,
        /** Another attempt may help: these three. */
        RATE_LIMITED,
        /** Nothing was done. */
        UNAVAILABLE,
        /** The service may have done what was asked. */
        UNKNOWN
    }

    /** Why a call failed. */
    public static final class Failure extends RuntimeException {
        private static final long serialVersionUID = 1;
        /** What kind it is of. */
        public final Kind kind;
        /** Of HTTP; 0: no answer. */
        public final int status;
        /** The service's, such as too_many_jobs; empty: it gave none. */
        public final String code;
        /** How long the service wants no request. */
        public final Duration retryAfter;

        Failure(Kind kind, int status, String code, String message, long afterMillis) {
            super("spillway: " + (code.isEmpty() ? kind.name().toLowerCase() : code) + ": " + message);
            this.kind = kind;
            this.status = status;
            this.code = code;
            retryAfter = Duration.ofMillis(afterMillis);
        }

        boolean temporary() {
            return kind == Kind.RATE_LIMITED || kind == Kind.UNAVAILABLE || kind == Kind.UNKNOWN;
        }

        boolean barred() {
            return kind == Kind.UNAUTHORIZED || kind == Kind.NO_NAMESPACE;
        }

        Failure maybe() {
            return new Failure(Kind.UNKNOWN, status, code, getMessage(), retryAfter.toMillis());
        }
    }

    /** A job of a queue. */
    public static final class Job {
        /** Where and which it is. */
        public final String queue, id;
        /** Deliveries so far, with this one, and at most. */
        public final int attempt, tries;
        /** As it was published. */
        public final byte[] payload;
        /** By name. */
        public final Map<String, String> attributes;
        /** Of get, peek and wait: ready, prepared, delayed, leased, dead, acked; gone: it ended unkept. Else empty. */
        public final String state;
        /** Of get and wait: what its ack said, as JSON; empty: nothing. */
        public final String result;
        /** Of get: percent and a note, that its worker said with progress; -1 and empty: nothing. */
        public final int progress;
        public final String note;
        /** Unix ms by the service's clock; 0: not said. */
        public final long publishedMs, ackedMs;
        volatile long deadlineMs; // of the lease that claim got; 0: a touch has moved it
        final Duration ttr; // that it was claimed for

        /** A delivery of which queue, id and attempt are known, to settle it. */
        public Job(String queue, String id, int attempt) {
            this(Map.of("queue", queue, "id", id, "attempt", (long) attempt));
        }

        @SuppressWarnings("unchecked")
        private Job(Map<String, Object> said) {
            queue = text(said, "queue");
            id = text(said, "id");
            attempt = (int) Json.whole(said.getOrDefault("attempt", 0L));
            tries = (int) Json.whole(said.getOrDefault("tries", 0L));
            state = text(said, "state");
            progress = (int) Json.whole(said.get("progress"));
            note = text(said, "note");
            result = text(said, "result");
            publishedMs = Math.max(0, Json.whole(said.get("published_ms")));
            ackedMs = Math.max(0, Json.whole(said.get("acked_ms")));
            ttr = Duration.ofMillis(said.containsKey("ttr_ms") ? Json.whole(said.get("ttr_ms")) : 60_000);
            deadlineMs = Math.max(0, Json.whole(said.get("deadline_ms")));
            Object named = said.getOrDefault("attributes", Map.of());
            if (!(named instanceof Map)) throw foreign();
            attributes = (Map<String, String>) named;
            try {
                payload = Base64.getDecoder().decode(text(said, "data"));
            } catch (IllegalArgumentException e) {
                throw foreign();
            }
        }

        static Job read(Object said) {
            Job j = new Job(Json.object(said));
            if (j.queue.isEmpty() || j.id.isEmpty() || j.attempt < 0 || j.tries < 0) throw foreign();
            return j;
        }

        private static String text(Map<String, Object> said, String name) {
            Object text = said.getOrDefault(name, "");
            if (text instanceof String) return (String) text;
            throw foreign();
        }
    }

    /** What a publish may say. Null, 0 and empty: the service's default. */
    public static final class PublishOptions {
        /** How long the jobs wait, how long they live with that, and how long the service remembers key (2m). */
        public Duration delay, ttl, dedup;
        /** For how long no other job is stored under uniqueKey, or id, whatever becomes of the first. */
        public Duration unique;
        /** Under what, and what a double does to the first while that is delayed: keep, replace or extend. */
        public String uniqueKey = "", onConflict = "";
        /** Facts beside the payload, 16 at most. */
        public Map<String, String> attributes = Map.of();
        /** A time to come, instead of delay. */
        public Instant at;
        /** Deliveries at most, default 3; how many times the job is stored, each with shard_index, from 0, and shard_total. */
        public int tries, shards;
        /** Your own name of a job, a key under which a repeat stores nothing, the queue that hears of the end. */
        public String id = "", key = "", onEnd = "";
    }

    /** What became of a publish. */
    public static final class Published {
        /** Of the jobs, in their order. */
        public final List<String> ids;
        /** An earlier publish with the same key stored them; a job with the same id exists, or one is unique; that was changed. */
        public final boolean repeated, exists, changed;

        Published(List<String> ids, boolean repeated, boolean exists, boolean changed) {
            this.ids = ids;
            this.repeated = repeated;
            this.exists = exists;
            this.changed = changed;
        }
    }

    /** Jobs of a queue. Delayed and leased are -1 where the service has too many to tell them apart. */
    public static final class Counts {
        /** How many. */
        public final long ready, delayed, leased, dead;

        Counts(Map<String, Object> said) {
            ready = Json.whole(said.get("ready"));
            delayed = Json.whole(said.get("delayed"));
            leased = Json.whole(said.get("leased"));
            dead = Json.whole(said.get("dead"));
            if (ready < 0) throw foreign();
        }
    }

    /** One request, the same on each attempt. */
    private static final class Call {
        String method = "POST", path, query = "", type = "", key = "";
        byte[] body = new byte[0];
        long keyTtl, wait, timeout;
        int attempts;
        boolean maybe; // an attempt before the last may have done what was asked
        Http.Abort abort;

        Call(String path) {
            this.path = path;
        }

        Call set(String name, Object value) {
            if (value instanceof Duration) value = ((Duration) value).isZero() ? null : Http.millis((Duration) value) + "ms";
            return value == null || value.equals(0) || value.equals("") ? this : add(name, value.toString());
        }

        Call add(String name, String value) {
            query += (query.isEmpty() ? "?" : "&") + name + "=" + encode(value);
            return this;
        }
    }

    private static final Map<String, Kind> CODES = Map.ofEntries(Map.entry("no_such_job", Kind.NO_JOB),
            Map.entry("too_many_jobs", Kind.TOO_MANY_JOBS), Map.entry("too_many_keys", Kind.TOO_MANY_KEYS),
            Map.entry("too_many_queues", Kind.TOO_MANY_QUEUES), Map.entry("no_such_namespace", Kind.NO_NAMESPACE),
            Map.entry("unauthorized", Kind.UNAUTHORIZED), Map.entry("forbidden", Kind.UNAUTHORIZED),
            Map.entry("rate_limited", Kind.RATE_LIMITED), Map.entry("empty_body", Kind.EMPTY),
            Map.entry("empty_batch", Kind.EMPTY), Map.entry("body_too_large", Kind.TOO_LARGE),
            Map.entry("entry_too_large", Kind.TOO_LARGE), Map.entry("too_many_entries", Kind.TOO_LARGE),
            Map.entry("request_timeout", Kind.UNAVAILABLE), Map.entry("hung_up", Kind.UNKNOWN),
            Map.entry("internal", Kind.UNKNOWN), Map.entry("store_unavailable", Kind.UNAVAILABLE),
            Map.entry("store_full", Kind.UNAVAILABLE), Map.entry("overloaded", Kind.UNAVAILABLE),
            Map.entry("shutting_down", Kind.UNAVAILABLE), Map.entry("not_ready", Kind.UNAVAILABLE));

    /** Bytes of an answer at most, of an error's text, a result; ms of a nack's wait. */
    private static final int MAX_ANSWER = 64 << 20, MAX_ERROR = 1 << 10, MAX_RESULT = 4 << 10;
    private static final long MAX_AFTER = Duration.ofDays(30).toMillis();

    final Config config;
    final String base; // with a slash at its end
    private final String keys = UUID.randomUUID().toString();
    private final AtomicLong numbers = new AtomicLong();
    private final Http http;

    /** Throws IllegalArgumentException for what cannot work. It connects to nothing yet. */
    public Queues(String url, Config config) {
        if (config.attempts < 1 || config.timeout.isZero() || config.timeout.isNegative() || config.backoffBase.isNegative()
                || config.backoffMax.compareTo(config.backoffBase) < 0) {
            throw new IllegalArgumentException("spillway: attempts and timeout are more than 0, backoffMax at least backoffBase");
        }
        this.config = config;
        base = Http.endpoint(url, config.namespace) + "/";
        http = new Http(config.token, config.timeout);
    }

    /** Stores a job. All attempts have one Idempotency-Key, so that it is stored once. */
    public Published publish(String queue, byte[] payload, PublishOptions o) {
        if (payload.length == 0) throw new Failure(Kind.EMPTY, 0, "empty_body", "a job is at least a byte", 0);
        return publish(queue, "application/octet-stream", payload, o);
    }

    /** Stores several jobs, all or none, whose payloads have no line break: 1000 and 1 MiB at most by default. */
    public Published publishMany(String queue, List<byte[]> payloads, PublishOptions o) {
        ByteArrayOutputStream body = new ByteArrayOutputStream();
        for (byte[] p : payloads) {
            if (p.length == 0) throw new Failure(Kind.EMPTY, 0, "empty_body", "a job is at least a byte", 0);
            for (byte b : p) if (b == '\n') throw invalid("bad_ndjson", "a payload has a line break: publish it alone");
            if (p[p.length - 1] == '\r') throw invalid("bad_ndjson", "a payload has a line break: publish it alone");
            body.write(p, 0, p.length);
            body.write('\n');
        }
        if (body.size() == 0) throw new Failure(Kind.EMPTY, 0, "empty_batch", "no job", 0);
        return publish(queue, "application/x-ndjson", body.toByteArray(), o);
    }

    private Published publish(String queue, String type, byte[] body, PublishOptions o) {
        Call c = new Call(checked(queue)).set("delay", o.delay).set("at", o.at).set("ttl", o.ttl).set("tries", o.tries).set("shards", o.shards).set("id", o.id)
                .set("on_end", o.onEnd).set("unique", o.unique).set("unique_key", o.uniqueKey).set("on_conflict", o.onConflict);
        o.attributes.forEach((name, value) -> {
            if (value != null) c.add("attribute." + encode(name), value);
        });
        c.type = type;
        c.body = body;
        c.key = o.key.isEmpty() ? keys + "-" + numbers.incrementAndGet() : o.key;
        if (!o.key.isEmpty()) c.set("dedup", o.dedup);
        c.keyTtl = o.key.isEmpty() || o.dedup == null ? 120_000 : Http.millis(o.dedup);
        Map<String, Object> said = run(c);
        if (said.containsKey("evicted")) throw buffer();
        List<String> ids = new ArrayList<>();
        for (Object id : Json.array(said.get("ids"))) {
            if (!(id instanceof String) || "".equals(id)) throw foreign();
            ids.add((String) id);
        }
        if (ids.isEmpty()) throw foreign();
        return new Published(ids, !o.key.isEmpty() && said.get("repeated") == Boolean.TRUE, said.get("exists") == Boolean.TRUE,
                said.get("changed") == Boolean.TRUE);
    }

    /**
     * Leases up to count jobs of queues, the most wanted queue first, for ttr (null, zero: the queue's), and waits for the first (null:
     * not at all). Each is to be settled before its ttr is over, or it comes again. A {@link Worker} does all this.
     */
    public List<Job> claim(List<String> queues, int count, Duration ttr, Duration wait) {
        return claim(queues, count, ttr, wait, config.attempts, null);
    }

    List<Job> claim(List<String> queues, int count, Duration ttr, Duration wait, int attempts, Http.Abort abort) {
        if (queues.isEmpty()) checked("");
        queues.forEach(Queues::checked);
        Call c = new Call(String.join(",", queues) + "/claim").set("count", count).set("ttr", ttr).set("wait", wait);
        c.wait = wait == null ? 0 : Http.millis(wait);
        c.attempts = attempts;
        c.abort = abort;
        List<Job> jobs = new ArrayList<>();
        for (Object one : Json.array(run(c).get("jobs"))) jobs.add(Job.read(one));
        for (Job j : jobs) if (!queues.contains(j.queue)) throw foreign();
        if (jobs.size() > Math.max(count, 1)) throw foreign();
        return jobs;
    }

    /** The job is done, also when its lease is over. GONE: it was acked or deleted before, or it expired. */
    public void ack(Job job) {
        ack(job, "");
    }

    /** The same, and the result of the job: JSON of 4 KiB at most, which wait and follow-ups tell; empty: none. */
    public void ack(Job job, String result) {
        settle(job, line(job, "ack", 0, "", result(result)), config.attempts);
    }

    /** Gives a job back, ready again after a while (30 days at most). error says why: 1 KiB of it, may be empty. */
    public void nack(Job job, Duration after, String error) {
        settle(job, "nack", Http.millis(after), error);
    }

    /** Gives a job up: it is dead, and stays to be looked at. */
    public void bury(Job job, String error) {
        settle(job, "bury", 0, error);
    }

    /** Leases a job for ttr from now on. */
    public void touch(Job job, Duration ttr) {
        touch(job, ttr, "");
    }

    /** Says how far the work got, in percent, and a note of which 200 bytes are kept: get has both. It is a touch. */
    public void progress(Job job, int percent, String note) {
        progress(job, percent, note, job.ttr);
    }

    /** The same, for another ttr than that of the claim. */
    public void progress(Job job, int percent, String note, Duration ttr) {
        touch(job, ttr.isZero() ? job.ttr : ttr, ",\"progress\":" + percent + ",\"note\":" + Json.quote(note == null ? "" : note));
    }

    private void touch(Job job, Duration ttr, String more) {
        job.deadlineMs = 0; // its answer may be lost
        settle(job, line(job, "touch", Http.millis(ttr), "", more), config.attempts);
    }

    /** Leases a job for ttr from now on; somebody else settles it, who has its queue, id and attempt. */
    public void defer(Job job, Duration ttr) {
        settle(job, "defer", Http.millis(ttr), "");
    }

    /** Gives a job of a queue of PHP's back, whatever its try. */
    public void release(Job job, Duration after) {
        settle(job, "release", Http.millis(after), "");
    }

    /** Gives a job back to the head of its queue, as if it had not been claimed. It is sent once. */
    public void requeue(Job job) {
        Job any = new Job(job.queue, job.id, job.attempt); // another thread may touch it
        settle(job, line(any, "requeue", 0, "", ""), 1);
    }

    private void settle(Job job, String verb, long ms, String error) {
        settle(job, line(job, verb, ms, error, ""), config.attempts);
    }

    private void settle(Job job, String line, int attempts) {
        Failure f = settle(job.queue, List.of(line), attempts, 0).get(0);
        if (f != null) throw f;
    }

    /** What an ack's line says of a result; null and empty: nothing. INVALID: it is not JSON of 4 KiB at most. */
    static String result(String json) {
        if (json == null || json.isEmpty()) return "";
        byte[] text = json.getBytes(StandardCharsets.UTF_8);
        if (text.length > MAX_RESULT || !Json.valid(text)) throw invalid("bad_result", "a result is JSON, 4 KiB at most");
        return ",\"result\":" + json.replace('\n', ' ').replace('\r', ' '); // which are between its tokens
    }

    /** A line of a settle. It can be repeated, for it changes only the delivery that it names. */
    static String line(Job job, String verb, long ms, String error, String more) {
        if (verb.equals("nack") || verb.equals("release") || verb.equals("defer")) ms = Math.min(Math.max(ms, 0), MAX_AFTER);
        byte[] text = error.getBytes(StandardCharsets.UTF_8);
        int n = Math.min(text.length, MAX_ERROR);
        while (n < text.length && (text[n] & 0xc0) == 0x80) n--; // cut at a character
        return "{\"id\":" + Json.quote(job.id) + ",\"attempt\":" + job.attempt + ",\"do\":\"" + verb + "\""
                + (ms == 0 ? "" : ",\"ms\":" + ms)
                + (verb.equals("requeue") && job.deadlineMs > 0 ? ",\"deadline_ms\":" + job.deadlineMs : "")
                + (n == 0 ? "" : ",\"error\":" + Json.quote(new String(text, 0, n, StandardCharsets.UTF_8))) + more + "}";
    }

    /** What became of each line: null, or why it failed. timeout of an attempt in ms; 0: as configured. */
    List<Failure> settle(String queue, List<String> lines, int attempts, long timeout) {
        Call c = new Call(checked(queue) + "/settle");
        c.type = "application/x-ndjson";
        c.body = (String.join("\n", lines) + "\n").getBytes(StandardCharsets.UTF_8);
        c.attempts = attempts;
        c.timeout = timeout;
        List<Failure> all = new ArrayList<>();
        for (Object one : Json.array(run(c).get("results"))) {
            Map<String, Object> said = Json.object(one);
            Object state = said.get("state"), error = said.get("error");
            if (error instanceof String) {
                all.add(new Failure(CODES.getOrDefault(error, Kind.INVALID), 200, (String) error, "" + said.get("message"), 0));
            } else if (!(state instanceof String)) {
                throw foreign();
            } else { // after a lost answer, gone most likely because of that attempt
                all.add(state.equals("gone") && !c.maybe
                        ? new Failure(Kind.GONE, 200, "", "the job is not leased to this attempt any more", 0) : null);
            }
        }
        if (all.size() != lines.size()) throw foreign();
        return all;
    }

    /** The job in whatever state it is, or NO_JOB. */
    public Job get(String queue, String id) {
        return wait(queue, id, Duration.ZERO);
    }

    /**
     * The job once it has ended: acked where a rule keeps it, gone where none does, dead; after wait, 10m at most, in the state
     * that it is in; or NO_JOB, also of one that ended unkept before. So look at state first.
     */
    public Job wait(String queue, String id, Duration wait) {
        Call c = method("GET", checked(queue) + "/jobs/" + encode(id));
        c.wait = Http.millis(wait);
        return Job.read(run(c.set("wait", wait)));
    }

    /** The job that is claimed next, or NO_JOB. */
    public Job peek(String queue) {
        return Job.read(run(method("GET", checked(queue) + "/peek")));
    }

    /** Ends a job in whatever state it is, or NO_JOB. */
    public void delete(String queue, String id) {
        Call c = method("DELETE", checked(queue) + "/jobs/" + encode(id));
        try {
            if (!(run(c).get("state") instanceof String)) throw foreign();
        } catch (Failure f) {
            if (f.kind != Kind.NO_JOB || !c.maybe) throw f;
        }
    }

    /** Counts the jobs of a queue. */
    public Counts counts(String queue) {
        return new Counts(run(method("GET", checked(queue))));
    }

    private static Call method(String method, String path) {
        Call c = new Call(path);
        c.method = method;
        return c;
    }

    private static String encode(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    private static String checked(String queue) {
        if (queue.matches("[A-Za-z0-9-][A-Za-z0-9._-]{0,254}")) return queue;
        throw invalid("bad_queue", "a queue is 1 to 255 letters, digits, ._- and begins with neither . nor _");
    }

    private static Failure invalid(String code, String message) {
        return new Failure(Kind.INVALID, 0, code, message, 0);
    }

    /** Of a publish that a buffer answers. */
    private static Failure buffer() {
        return new Failure(Kind.NO_NAMESPACE, 200, "",
                "the namespace is a buffer, and took the payload as an entry; jobs are for one of kind queue", 0);
    }

    static Failure foreign() {
        return new Failure(Kind.UNKNOWN, 200, "", "an answer that is none of Spillway's", 0);
    }

    /** Makes attempts until one is answered for good. */
    private Map<String, Object> run(Call c) {
        int attempts = c.attempts == 0 ? config.attempts : c.attempts;
        long forgotten = Long.MAX_VALUE; // when the service may not know the key of an attempt that may have been done
        for (int attempt = 1;; attempt++) {
            long sent = Http.clock(), timeout = (c.timeout == 0 ? Http.millis(config.timeout) : c.timeout) + c.wait;
            Failure failed;
            try {
                Http.Answer a = http.send(c.method, base + c.path + c.query, c.body, Math.min(timeout, forgotten - sent), MAX_ANSWER,
                        c.abort, c.type.isEmpty() ? new String[0] : new String[] {"Content-Type", c.type},
                        c.key.isEmpty() ? new String[0] : new String[] {"Idempotency-Key", c.key});
                if (a.status == 200 || a.status == 201) {
                    if (a.said == null) throw foreign();
                    return a.said;
                }
                failed = failure(a);
                if (!failed.temporary()) throw failed;
                if (failed.kind == Kind.UNKNOWN && !c.maybe) {
                    c.maybe = true;
                    if (!c.key.isEmpty()) forgotten = sent + c.keyTtl / 12 * 11;
                }
                if (c.maybe) failed = failed.maybe();
                long wait = Math.max(Http.backoff(config.backoffBase, config.backoffMax, attempt), failed.retryAfter.toMillis());
                if (attempt >= attempts || forgotten - Http.clock() < wait) throw failed;
                Thread.sleep(wait);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new Failure(Kind.UNKNOWN, 0, "", "interrupted", 0);
            }
        }
    }

    static Failure failure(Http.Answer a) {
        if (a.status == 200) return foreign();
        if (a.failed != null) return new Failure(a.unsent ? Kind.UNAVAILABLE : Kind.UNKNOWN, 0, "", a.failed.toString(), 0);
        Map<String, Object> said = a.said == null ? Map.of() : a.said;
        String code = said.get("error") instanceof String ? (String) said.get("error") : "";
        Kind kind = CODES.get(code);
        if (kind == null) kind = a.status == 429 ? Kind.RATE_LIMITED : a.status < 500 ? Kind.INVALID : Kind.UNKNOWN;
        if ("unknown".equals(said.get("outcome"))) kind = Kind.UNKNOWN;
        String message = code.isEmpty() ? "the service answered " + a.status : "" + said.get("message");
        return new Failure(kind, a.status, code, message.substring(0, Math.min(message.length(), 200)), a.after);
    }

    /** Requests to one service. */
    static final class Http {
        /** What an attempt came to. */
        static final class Answer {
            int status;
            long after; // ms to wait at least
            Map<String, Object> said; // null: no JSON object
            Throwable failed; // no answer
            boolean unsent; // because there was no connection

            private void fail(Throwable why) {
                failed = why;
                unsent = why instanceof ConnectException || why instanceof HttpConnectTimeoutException;
            }

            private void head(HttpResponse<?> r) {
                status = r.statusCode();
                after = r.headers().firstValue("Retry-After").map(Http::seconds).orElse(0L);
            }
        }

        /** Ends the requests that are made with it. */
        static final class Abort {
            private CompletableFuture<?> request;
            private boolean over;

            synchronized void hold(CompletableFuture<?> f) {
                request = f;
                if (over) f.cancel(true);
            }

            synchronized void end() {
                over = true;
                if (request != null) request.cancel(true);
            }
        }

        private static final Duration LONGEST = Duration.ofDays(36500);
        private final HttpClient client;
        private final String token;

        Http(String token, Duration timeout) {
            if (!token.chars().allMatch(c -> c > ' ' && c <= '~')) {
                throw new IllegalArgumentException("spillway: the token holds a character that no token has");
            }
            this.token = token;
            client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).followRedirects(HttpClient.Redirect.NEVER)
                    .connectTimeout(timeout).build();
        }

        /** The hook of a program that gives none: it logs each kind of failure, once a minute at most. */
        static Consumer<Failure> warner(String url) {
            Map<Kind, Long> last = new ConcurrentHashMap<>();
            return f -> {
                long now = clock();
                if (now - last.getOrDefault(f.kind, now - 60_000) < 60_000) return;
                last.put(f.kind, now);
                System.getLogger("io.spillway").log(System.Logger.Level.WARNING, "a request to " + url + " failed: " + f.getMessage());
            };
        }

        /** Calls a callback of the program, whose exceptions are its own: the first is logged. */
        static final class Guest {
            private final AtomicBoolean told = new AtomicBoolean();

            void call(Runnable callback) {
                try {
                    callback.run();
                } catch (Throwable fault) {
                    if (told.getAndSet(true)) return;
                    System.getLogger("io.spillway").log(System.Logger.Level.ERROR, "a callback threw, which is told once", fault);
                }
            }
        }

        /** The URL of a namespace. */
        static String endpoint(String url, String namespace) {
            if (!namespace.matches("[A-Za-z0-9][A-Za-z0-9._-]{0,63}")) {
                throw new IllegalArgumentException("spillway: bad namespace: want a letter or digit, then letters, digits, ._- up to 64");
            }
            URI u = URI.create(url.replaceAll("/+$", ""));
            if (u.getHost() == null || !("http".equals(u.getScheme()) || "https".equals(u.getScheme())) || u.getRawUserInfo() != null
                    || u.getRawQuery() != null || u.getRawFragment() != null) {
                throw new IllegalArgumentException("spillway: the URL is http://host:port or https://host:port");
            }
            return u + "/v1/" + namespace;
        }

        private HttpRequest request(String method, String url, byte[] body, long timeout, String[]... headers) {
            HttpRequest.Builder r = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofMillis(timeout))
                    .method(method, body.length == 0 ? BodyPublishers.noBody() : once(body));
            for (String[] h : headers) if (h.length == 2) r.header(h[0], h[1]);
            if (!token.isEmpty()) r.header("Authorization", "Bearer " + token);
            return r.build();
        }

        /** One attempt, which reads limit bytes of the answer at most. */
        Answer send(String method, String url, byte[] body, long timeout, int limit, Abort abort, String[]... headers)
                throws InterruptedException {
            timeout = Math.max(timeout, 1);
            HttpRequest r = request(method, url, body, timeout, headers);
            Answer a = new Answer();
            Collected collected = new Collected(limit, timeout); // which the request's timeout leaves out
            CompletableFuture<HttpResponse<byte[]>> f = null;
            try {
                HttpResponse<byte[]> said;
                if (abort == null) {
                    said = client.send(r, info -> collected); // sendAsync may start a thread a request
                } else {
                    f = client.sendAsync(r, info -> collected);
                    abort.hold(f);
                    said = f.get();
                }
                a.head(said);
                a.said = Json.read(said.body());
            } catch (IOException | CancellationException e) {
                a.fail(e);
            } catch (ExecutionException e) {
                a.fail(e.getCause());
            } finally {
                if (f != null && !f.isDone()) f.cancel(true); // from Java 16 on this ends the request
                if (a.status == 0) collected.cancel();
            }
            return a;
        }

        /**
         * A body that is sent once. Told so by its properties, the JDK repeats a POST by itself where a connection was closed
         * before an answer. It asks for the length first: then that fails, and nothing is sent. It is repeated here, or not at all.
         */
        private static BodyPublisher once(byte[] body) {
            BodyPublisher bytes = BodyPublishers.ofByteArray(body);
            AtomicBoolean taken = new AtomicBoolean();
            return new BodyPublisher() {
                @Override
                public long contentLength() {
                    if (taken.get()) throw new IllegalStateException("the request was sent before");
                    return body.length;
                }

                @Override
                public void subscribe(Flow.Subscriber<? super ByteBuffer> s) {
                    taken.set(true);
                    bytes.subscribe(s);
                }
            };
        }

        /** The body of an answer, up to a limit. */
        private static final class Collected implements BodySubscriber<byte[]> {
            private final CompletableFuture<byte[]> done = new CompletableFuture<>();
            private final ByteArrayOutputStream all = new ByteArrayOutputStream();
            private final int limit;
            private volatile Flow.Subscription from;

            Collected(int limit, long timeout) {
                this.limit = limit;
                done.orTimeout(timeout, TimeUnit.MILLISECONDS);
            }

            void cancel() {
                if (from != null) from.cancel();
            }

            @Override
            public CompletionStage<byte[]> getBody() {
                return done;
            }

            @Override
            public void onSubscribe(Flow.Subscription s) {
                from = s;
                s.request(Long.MAX_VALUE);
            }

            @Override
            public void onNext(List<ByteBuffer> list) {
                for (ByteBuffer b : list) {
                    byte[] part = new byte[b.remaining()];
                    b.get(part);
                    all.write(part, 0, part.length);
                }
                if (all.size() > limit) {
                    cancel();
                    done.completeExceptionally(new IOException("an answer of more than " + limit + " bytes"));
                }
            }

            @Override
            public void onError(Throwable e) {
                done.completeExceptionally(e);
            }

            @Override
            public void onComplete() {
                done.complete(all.toByteArray());
            }
        }

        private static long seconds(String header) {
            return header.matches("\\d{1,9}") ? Math.min(Long.parseLong(header), 3600) * 1000 : 0;
        }

        /** A random time in ms up to the nth bound (full jitter). */
        static long backoff(Duration base, Duration most, int n) {
            double bound = Math.min(millis(most), millis(base) * Math.pow(2, n - 1));
            return (long) (ThreadLocalRandom.current().nextDouble() * bound);
        }

        static long millis(Duration d) {
            return d.compareTo(LONGEST) > 0 ? LONGEST.toMillis() : d.toMillis();
        }

        /** Ms of a clock that never goes back. */
        static long clock() {
            return System.nanoTime() / 1_000_000;
        }
    }
}
