package io.spillway;

import io.spillway.Queues.Http;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import java.util.zip.Deflater;
import java.util.zip.GZIPOutputStream;

/**
 * Reports events and forgets them. report queues and returns: it never waits for the network. What cannot be sent is tried
 * again until it is too old, the oldest entries make room, and each is counted: reported is always acked + pending + the
 * sum of dropped. Entries of a partition are stored in their order, once. It is safe for several threads, has threads
 * of its own that end no program, and is closed by its owner.
 */
public final class Reporter implements AutoCloseable {
    /** How a Reporter works. */
    public static final class Config {
        /** That the entries go to. */
        public String namespace = "default";
        /** Sent as a bearer token; default none. */
        public String token = "";
        /** Entries of a request, 1 to 1000, and bytes of their payloads. */
        public int batch = 128, batchBytes = 256 << 10;
        /** How long an entry waits for others to fill a request. */
        public Duration linger = Duration.ofSeconds(1);
        /** Entries that wait, and bytes of their payloads. One partition may have half of each. */
        public int queue = 10_000, queueBytes = 32 << 20;
        /** Bytes of one payload. */
        public int maxEntry = 32 << 10;
        /** How old an entry may get here. */
        public Duration maxAge = Duration.ofMinutes(3);
        /** Requests on their way at once; two of them never carry the same partition. */
        public int inFlight = 4;
        /** Of one attempt. */
        public Duration timeout = Duration.ofSeconds(10);
        /**
         * How often a request is tried that is answered 408, 429, 500 or what is not of Spillway; otherwise until it is too old.
         * And the bounds of the random time between.
         */
        public int attempts = 4;
        public Duration backoffBase = Duration.ofMillis(100), backoffMax = Duration.ofSeconds(5);
        /** After how many failures in a row one attempt a probeEvery is made. */
        public int breakAfter = 5;
        public Duration probeEvery = Duration.ofSeconds(1);
        /** Bytes from which a body is sent as gzip; negative: never. */
        public int compressFrom = 1024;
        /**
         * Told of drops by reason and of errors, each at most once a second, on a thread of its own; must not call close.
         * Without onError, System.Logger warns of each kind of error, once a minute at most.
         */
        public BiConsumer<String, Long> onDrop;
        public Consumer<Throwable> onError;
        Duration keyWindow = Duration.ofSeconds(110); // less than the 2m for which the service remembers a key
    }

    /** Counts of entries since the Reporter was made. */
    public static final class Stats {
        /** How many. */
        public final long reported, acked, pending;
        /** By reason: queue_overflow, stale, too_large, retries_exhausted, shutdown, rejected, unknown, invalid. */
        public final Map<String, Long> dropped;

        Stats(long reported, long acked, Map<String, Long> dropped) {
            this.reported = reported;
            this.acked = acked;
            this.dropped = dropped;
            pending = reported - acked - dropped.values().stream().mapToLong(n -> n).sum();
        }
    }

    private static final class Entry {
        Part part;
        byte[] payload;
        String id;
        long at, queued, seq; // ms of the wall clock, of Http.clock
        Entry older, newer;
    }

    private static final class Part {
        final String name;
        final ArrayDeque<Entry> entries = new ArrayDeque<>();
        long bytes;
        boolean busy; // a request carries entries of it

        Part(String name) {
            this.name = name;
        }
    }

    private static final int MAX_ANSWER = 1 << 20;
    private final Config o;
    private final String target, keys = UUID.randomUUID().toString();
    private final Http http;
    private final List<Thread> threads = new ArrayList<>();

    private final ReentrantLock gate = new ReentrantLock(); // for all that follows
    private final Condition work = gate.newCondition(), changed = gate.newCondition(), noticed = gate.newCondition();
    private final Map<String, Part> parts = new HashMap<>();
    private final Set<Part> ready = new LinkedHashSet<>(); // that have entries and are not busy
    private final Set<List<Entry>> requests = new LinkedHashSet<>();
    private Entry oldest, newest;
    private long waiting, bytes, free, freeBytes; // in the queue; of partitions in ready
    private long reported, acked, numbers, seq, probe;
    private int flushing, failures;
    private boolean closed, over;
    private final Map<String, Long> dropped = new HashMap<>();
    private Map<String, Long> untold = new HashMap<>(), notices = new HashMap<>();
    private Queues.Failure error;

    /** Throws IllegalArgumentException for what cannot work. It connects to nothing yet. */
    public Reporter(String url, Config config) {
        o = config;
        if (o.batch < 1 || o.batch > 1000 || o.queue < 2 || o.inFlight < 1 || o.attempts < 1 || o.breakAfter < 1 || o.maxEntry < 1
                || o.batchBytes < o.maxEntry || o.queueBytes / 2 < o.maxEntry || o.timeout.isZero() || o.timeout.isNegative()) {
            throw new IllegalArgumentException("spillway: batch is 1 to 1000, queue 2 or more, inFlight, attempts, breakAfter and"
                    + " timeout more than 0, batchBytes an entry at least, queueBytes two");
        }
        target = Http.endpoint(url, o.namespace);
        http = new Http(o.token, o.timeout);
        for (int i = 0; i < o.inFlight; i++) start(this::sender);
        start(this::notifier);
    }

    private void start(Runnable r) {
        Thread t = new Thread(r, "spillway-reporter");
        t.setDaemon(true);
        threads.add(t);
        t.start();
    }

    /** Queues an entry of now: JSON text, or other text as it is. False for what is not taken, which is counted. */
    public boolean report(String partition, String payload) {
        return report(partition, payload.getBytes(StandardCharsets.UTF_8), System.currentTimeMillis(), "");
    }

    /** Queues bytes of a time in Unix ms, which must not change. Those that are JSON travel together, others alone and without id. */
    public boolean report(String partition, byte[] payload, long at, String id) {
        gate.lock();
        try {
            reported++;
            if (payload.length == 0 || !validName(partition) || id.length() > 64 || !id.chars().allMatch(c -> c > ' ' && c <= '~')) {
                return drop("invalid", 1);
            }
            if (payload.length > o.maxEntry) return drop("too_large", 1);
            if (closed) return drop("shutdown", 1);
            Entry e = new Entry();
            e.part = parts.computeIfAbsent(partition, Part::new);
            e.payload = payload;
            e.id = id;
            e.at = at;
            e.queued = Http.clock();
            e.seq = ++seq;
            e.older = newest;
            if (newest == null) oldest = e; else newest.newer = e;
            newest = e;
            if (e.part.entries.isEmpty() && !e.part.busy) ready.add(e.part);
            e.part.entries.add(e);
            count(e, 1);
            while (e.part.entries.size() > o.queue / 2 || e.part.bytes > o.queueBytes / 2) lose(e.part.entries.peek(), "queue_overflow");
            while (waiting > o.queue || bytes > o.queueBytes) lose(oldest, "queue_overflow");
            if (free == 1 || free % o.batch == 0 || freeBytes >= o.batchBytes) work.signal();
            return true;
        } finally {
            gate.unlock();
        }
    }

    private static boolean validName(String name) {
        int n = name.length();
        for (int i = 0; i < n; i++) {
            char c = name.charAt(i);
            boolean letter = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9';
            if (!letter && (i == 0 || c != '.' && c != '_' && c != '-')) return false;
        }
        return n > 0 && n <= 128;
    }

    /** Counts of now. */
    public Stats stats() {
        gate.lock();
        try {
            return new Stats(reported, acked, new HashMap<>(dropped));
        } finally {
            gate.unlock();
        }
    }

    /** Sends what waits without its linger; true when all of it was settled in time. */
    public boolean flush(Duration timeout) {
        long left = TimeUnit.MILLISECONDS.toNanos(Math.min(Http.millis(timeout), Long.MAX_VALUE / 2_000_000));
        gate.lock();
        try {
            flushing++;
            work.signalAll();
            for (long last = seq; first() <= last;) {
                if (left <= 0) return false;
                left = changed.awaitNanos(left);
            }
            return true;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return false;
        } finally {
            flushing--;
            gate.unlock();
        }
    }

    /** The lowest number of an entry that is pending. */
    private long first() {
        long least = oldest == null ? Long.MAX_VALUE : oldest.seq;
        for (List<Entry> r : requests) least = Math.min(least, r.get(0).seq);
        return least;
    }

    /** Takes no more entries, flushes for as long as timeout, and drops the rest; true when nothing was left. */
    public boolean close(Duration timeout) {
        gate.lock();
        closed = true;
        gate.unlock();
        boolean done = flush(timeout);
        gate.lock();
        over = true;
        while (oldest != null) lose(oldest, "shutdown");
        gate.unlock();
        boolean interrupted = Thread.interrupted();
        for (Thread t : threads) {
            t.interrupt();
            try {
                t.join();
            } catch (InterruptedException e) {
                interrupted = true;
            }
        }
        if (interrupted) Thread.currentThread().interrupt();
        return done;
    }

    /** Close with 5 seconds. */
    @Override
    public void close() {
        close(Duration.ofSeconds(5));
    }

    private void count(Entry e, int n) {
        waiting += n;
        bytes += (long) n * e.payload.length;
        e.part.bytes += (long) n * e.payload.length;
        if (e.part.busy) return;
        free += n;
        freeBytes += (long) n * e.payload.length;
    }

    /** Takes the oldest entry of its partition out of the queue. */
    private void remove(Entry e) {
        Part p = e.part;
        p.entries.poll();
        if (e.older == null) oldest = e.newer; else e.older.newer = e.newer;
        if (e.newer == null) newest = e.older; else e.newer.older = e.older;
        count(e, -1);
        if (!p.entries.isEmpty() || p.busy) return;
        ready.remove(p);
        parts.remove(p.name);
    }

    private void lose(Entry e, String why) {
        remove(e);
        drop(why, 1);
    }

    private boolean drop(String why, long n) {
        if (n == 0) return false;
        dropped.merge(why, n, Long::sum);
        if (!why.equals("rejected")) untold.merge(why.equals("invalid") ? "other" : why, n, Long::sum);
        if (o.onDrop != null) {
            notices.merge(why, n, Long::sum);
            noticed.signal();
        }
        return false;
    }

    private void notifier() {
        Http.Guest ofDrops = new Http.Guest(), ofErrors = new Http.Guest();
        Consumer<? super Queues.Failure> told = o.onError == null ? Http.warner(target) : o.onError;
        for (boolean last = false; !last;) {
            Map<String, Long> drops;
            Queues.Failure e;
            gate.lock();
            try {
                while (!over && notices.isEmpty() && error == null) noticed.await();
            } catch (InterruptedException end) {
                last = true;
            } finally {
                last |= over;
                drops = notices;
                e = error;
                notices = new HashMap<>();
                error = null;
                gate.unlock();
            }
            drops.forEach((why, n) -> ofDrops.call(() -> o.onDrop.accept(why, n)));
            if (e != null) ofErrors.call(() -> told.accept(e));
            try {
                if (!last) Thread.sleep(1000);
            } catch (InterruptedException end) {
                last = false; // once more, for the drops of the close
            }
        }
    }

    /** Sends one request at a time. */
    private void sender() {
        gate.lock();
        try {
            while (!over) {
                while (oldest != null && System.currentTimeMillis() >= staleAt(oldest)) lose(oldest, "stale");
                changed.signalAll();
                long wait = due();
                if (wait > 0) {
                    work.await(Math.min(wait, oldest == null ? wait : staleAt(oldest) - System.currentTimeMillis() + 1),
                            TimeUnit.MILLISECONDS);
                    continue;
                }
                Set<Part> carried = new LinkedHashSet<>();
                List<Entry> list = gather(carried);
                if (list.isEmpty()) { // stale, all of them
                    for (Part p : carried) release(p);
                    continue;
                }
                requests.add(list);
                if (due() <= 0) work.signal();
                gate.unlock();
                try {
                    send(new ArrayList<>(list));
                } finally {
                    gate.lock();
                    requests.remove(list);
                    for (Part p : carried) release(p);
                    changed.signalAll();
                }
            }
        } catch (InterruptedException end) {
            return; // close
        } finally {
            gate.unlock();
        }
    }

    /** Ms until a request is due. */
    private long due() {
        if (free == 0) return Long.MAX_VALUE;
        if (flushing > 0 || free >= o.batch || freeBytes >= o.batchBytes) return 0;
        long first = Long.MAX_VALUE;
        for (Part p : ready) first = Math.min(first, p.entries.peek().queued);
        return first + Http.millis(o.linger) - Http.clock();
    }

    /** Entries for a request, partition by partition, which are busy from then on. */
    private List<Entry> gather(Set<Part> carried) {
        List<Entry> list = new ArrayList<>();
        long size = 0, least = Long.MAX_VALUE;
        for (Iterator<Part> each = ready.iterator(); each.hasNext() && list.size() < o.batch && size < o.batchBytes;) {
            Part p = each.next();
            if (!list.isEmpty() && size + p.entries.peek().payload.length > o.batchBytes) break;
            each.remove();
            carried.add(p);
            free -= p.entries.size();
            freeBytes -= p.bytes;
            p.busy = true;
            int begin = list.size();
            while (!p.entries.isEmpty() && list.size() < o.batch) {
                Entry e = p.entries.peek();
                if (!list.isEmpty() && size + e.payload.length > o.batchBytes) break;
                if (System.currentTimeMillis() >= staleAt(e)) {
                    lose(e, "stale");
                    continue;
                }
                remove(e);
                list.add(e);
                size += e.payload.length;
            }
            if (begin < list.size() && list.get(begin).seq < least) { // the request's first has the lowest number
                least = list.get(begin).seq;
                Collections.rotate(list, list.size() - begin);
            }
        }
        return list;
    }

    private void release(Part p) {
        p.busy = false;
        if (p.entries.isEmpty()) {
            parts.remove(p.name);
            return;
        }
        ready.add(p);
        free += p.entries.size();
        freeBytes += p.bytes;
    }

    /** Entries that are JSON share a body, others travel alone. */
    private void send(List<Entry> all) {
        for (int i = 0; i < all.size();) {
            int from = i;
            while (i < all.size() && Json.valid(all.get(i).payload)) i++;
            boolean json = i > from;
            if (!json) i++;
            deliver(new ArrayList<>(all.subList(from, i)), json);
        }
    }

    /**
     * Makes attempts until each entry is stored or dropped for good. All have the same bytes and key, so that the service,
     * which may have stored some of the entries, stores only the others. They end when the youngest entry is stale, and
     * before the service forgets the key.
     */
    private void deliver(List<Entry> list, boolean json) {
        long latest = Long.MIN_VALUE;
        for (Entry e : list) latest = Math.max(latest, staleAt(e));
        byte[] body = json ? items(list) : list.get(0).payload;
        boolean zipped = o.compressFrom >= 0 && body.length >= o.compressFrom;
        if (zipped) body = zip(body);
        boolean maybe = false; // some entries may be stored
        int noes = 0; // answers that more attempts may not change
        String late = "stale", key = key();
        try {
            for (int attempt = 1;; attempt++) {
                if (!pass(latest)) break;
                long sent = System.currentTimeMillis(), timeout = Http.millis(o.timeout);
                Http.Answer a = post(list.get(0), json, body, zipped, key, late.equals("stale") ? timeout : Math.min(timeout, latest - sent));
                String[] verdicts = a.status == 200 ? verdicts(a.said, list.size()) : null;
                boolean stored = verdicts != null || a.status == 204;
                boolean again = a.failed != null || a.status == 200 || a.status == 408 || a.status == 429 || a.status >= 500;
                note(a, stored, again && a.status != 408 && a.status != 429);
                if (stored && settle(list, verdicts)) return;
                if (!stored && !again) {
                    if (a.status == 413 && list.size() > 1 && !maybe) {
                        deliver(new ArrayList<>(list.subList(0, list.size() / 2)), json);
                        deliver(new ArrayList<>(list.subList(list.size() / 2, list.size())), json);
                    } else {
                        end(list, "rejected");
                    }
                    return;
                }
                boolean nothing = a.unsent || a.status == 408 || a.status == 429 || a.status == 503 && a.said != null
                        && a.said.containsKey("error") && !"unknown".equals(a.said.get("outcome"));
                if (!maybe && (stored || !nothing)) {
                    maybe = true;
                    if (sent + Http.millis(o.keyWindow) < latest) {
                        latest = sent + Http.millis(o.keyWindow);
                        late = "unknown";
                    }
                }
                if (!stored && a.failed == null && (a.status < 502 || a.status > 504) && ++noes >= o.attempts) {
                    end(list, "retries_exhausted");
                    return;
                }
                long wait = Math.max(Http.backoff(o.backoffBase, o.backoffMax, attempt), a.after);
                if (System.currentTimeMillis() + wait > latest) break;
                Thread.sleep(wait);
            }
            end(list, late);
        } catch (InterruptedException e) {
            end(list, "shutdown");
            Thread.currentThread().interrupt();
        }
    }

    private String key() {
        gate.lock();
        try {
            return keys + "-" + ++numbers;
        } finally {
            gate.unlock();
        }
    }

    /** Waits until the breaker lets an attempt be made; false when that is too late. */
    private boolean pass(long latest) throws InterruptedException {
        for (;;) {
            long wait;
            gate.lock();
            try {
                if (over) throw new InterruptedException();
                long now = Http.clock();
                wait = failures < o.breakAfter ? 0 : probe - now;
                if (wait <= 0) probe = now + Http.millis(o.probeEvery);
            } finally {
                gate.unlock();
            }
            if (System.currentTimeMillis() + Math.max(wait, 0) > latest) return false;
            if (wait <= 0) return true;
            Thread.sleep(wait);
        }
    }

    private void note(Http.Answer a, boolean stored, boolean down) {
        gate.lock();
        try {
            failures = stored || !down ? 0 : failures + 1;
            if (stored) return;
            error = Queues.failure(a);
            noticed.signal();
        } finally {
            gate.unlock();
        }
    }

    /** Enters verdicts, leaves in the list (as null: gone) what is to be sent again, and is true when nothing is. */
    private boolean settle(List<Entry> list, String[] verdicts) {
        gate.lock();
        try {
            boolean done = true;
            for (int i = 0; i < list.size(); i++) {
                if (list.get(i) == null) continue;
                String verdict = verdicts == null ? null : verdicts[i];
                if ("retry".equals(verdict)) {
                    done = false;
                    continue;
                }
                if ("drop".equals(verdict)) drop("rejected", 1); else acked++;
                list.set(i, null);
            }
            return done;
        } finally {
            gate.unlock();
        }
    }

    private void end(List<Entry> list, String why) {
        gate.lock();
        drop(over && !why.equals("rejected") ? "shutdown" : why, list.stream().filter(e -> e != null).count());
        gate.unlock();
    }

    private static byte[] items(List<Entry> list) {
        ByteArrayOutputStream all = new ByteArrayOutputStream(list.size() * 160);
        for (int i = 0; i < list.size(); i++) {
            Entry e = list.get(i);
            String id = e.id.isEmpty() ? "" : ",\"id\":" + Json.quote(e.id);
            all.writeBytes(((i == 0 ? "[" : ",") + "{\"partition\":\"" + e.part.name + "\",\"ts\":" + e.at + id + ",\"data\":")
                    .getBytes(StandardCharsets.US_ASCII));
            all.writeBytes(e.payload);
            all.write('}');
        }
        all.write(']');
        return all.toByteArray();
    }

    /** Fast rather than small: events are alike. */
    private static final class Zip extends GZIPOutputStream {
        Zip(OutputStream to) throws IOException {
            super(to, 8 << 10);
            def.setLevel(Deflater.BEST_SPEED);
        }
    }

    private static byte[] zip(byte[] body) {
        ByteArrayOutputStream packed = new ByteArrayOutputStream(body.length / 4);
        try (GZIPOutputStream zip = new Zip(packed)) {
            zip.write(body);
        } catch (IOException e) {
            throw new UncheckedIOException(e); // memory takes every write
        }
        return packed.toByteArray();
    }

    private Http.Answer post(Entry first, boolean json, byte[] body, boolean zipped, String key, long timeout)
            throws InterruptedException {
        Map<String, Long> told;
        gate.lock();
        told = untold;
        untold = new HashMap<>();
        gate.unlock();
        Http.Answer a = null;
        try {
            List<String[]> headers = new ArrayList<>();
            headers.add(new String[] {"Content-Type", json ? "application/json" : "application/octet-stream"});
            headers.add(new String[] {"Idempotency-Key", key});
            headers.add(new String[] {"X-Sent-At", "" + System.currentTimeMillis()});
            if (zipped) headers.add(new String[] {"Content-Encoding", "gzip"});
            if (!json) headers.add(new String[] {"X-Event-Ts", "" + first.at});
            if (!told.isEmpty()) {
                headers.add(new String[] {"X-Client-Discards", told.toString().replaceAll("[{} ]", "")});
            }
            String url = json ? target : target + "/" + first.part.name;
            a = http.send("POST", url, body, timeout, MAX_ANSWER, null, headers.toArray(new String[0][]));
            return a;
        } finally {
            if (a == null || a.failed != null || a.status > 204) { // not heard
                gate.lock();
                told.forEach((why, n) -> untold.merge(why, n, Long::sum));
                gate.unlock();
            }
        }
    }

    /** What an answer says of each of n entries: "retry", "drop", or that it is stored. Null: none of Spillway's. */
    private static String[] verdicts(Map<String, Object> said, int n) {
        long accepted = said == null ? -1 : Json.whole(said.get("accepted"));
        if (accepted < 0 || accepted > n) return null;
        String[] verdicts = new String[n];
        Object results = said.get("results");
        if (results == null) return verdicts;
        if (!(results instanceof List)) return null;
        for (Object one : (List<?>) results) {
            if (!(one instanceof Map)) return null;
            Object verdict = ((Map<?, ?>) one).get("result");
            long i = Json.whole(((Map<?, ?>) one).get("i"));
            if (i < 0 || i >= n || !(verdict instanceof String)) return null;
            verdicts[(int) i] = (String) verdict;
        }
        return verdicts;
    }

    private long staleAt(Entry e) {
        return e.at + Http.millis(o.maxAge);
    }

    /** As much of JSON as the client needs. */
    static final class Json {
        private static final int MAX_DEPTH = 500; // the service takes 512 levels, and adds two
        private static final IllegalArgumentException BAD = new IllegalArgumentException("not JSON");
        private final byte[] s;
        private final boolean build;
        private int at;

        private Json(byte[] text, boolean build) {
            s = text;
            this.build = build;
        }

        /** Whether bytes are one JSON value, which nests no deeper than the service takes it. */
        static boolean valid(byte[] text) {
            try {
                new Json(text, false).whole();
                return true;
            } catch (IllegalArgumentException e) {
                return false;
            }
        }

        /** An object; null for anything else. */
        @SuppressWarnings("unchecked")
        static Map<String, Object> read(byte[] text) {
            try {
                Object v = new Json(text, true).whole();
                return v instanceof Map ? (Map<String, Object>) v : null;
            } catch (IllegalArgumentException e) {
                return null;
            }
        }

        @SuppressWarnings("unchecked")
        static Map<String, Object> object(Object v) {
            if (v instanceof Map) return (Map<String, Object>) v;
            throw Queues.foreign();
        }

        static List<?> array(Object v) {
            if (v instanceof List) return (List<?>) v;
            throw Queues.foreign();
        }

        /** A whole number from 0; -1 for anything else. */
        static long whole(Object v) {
            return v instanceof Long ? Math.max((Long) v, -1) : -1;
        }

        static String quote(String text) {
            StringBuilder b = new StringBuilder("\"");
            for (int i = 0; i < text.length(); i++) {
                char c = text.charAt(i);
                if (c == '"' || c == '\\') b.append('\\').append(c);
                else if (c < ' ') b.append(String.format("\\u%04x", (int) c));
                else b.append(c);
            }
            return b.append('"').toString();
        }

        private Object whole() {
            Object v = value(0);
            if (space() >= 0) throw BAD;
            return v;
        }

        /** The next byte that is no space; -1: the end. */
        private int space() {
            while (at < s.length && (s[at] == ' ' || s[at] == '\t' || s[at] == '\n' || s[at] == '\r')) at++;
            return at < s.length ? s[at] : -1;
        }

        private boolean take(char c) {
            if (space() != c) return false;
            at++;
            return true;
        }

        private Object value(int depth) {
            if (depth > MAX_DEPTH) throw BAD;
            switch (space()) {
                case '"': return text();
                case 't': return word("true", true);
                case 'f': return word("false", false);
                case 'n': return word("null", null);
                case '{': return members(depth);
                case '[': return values(depth);
                default: return number();
            }
        }

        private Object word(String word, Object v) {
            for (int i = 0; i < word.length(); i++) if (at >= s.length || s[at++] != word.charAt(i)) throw BAD;
            return v;
        }

        private Object members(int depth) {
            Map<String, Object> all = build ? new LinkedHashMap<>() : null;
            at++;
            if (take('}')) return all;
            do {
                if (space() != '"') throw BAD;
                String name = text();
                if (!take(':')) throw BAD;
                int from = at;
                Object v = value(depth + 1);
                if (build && depth == 0 && name.equals("result")) v = new String(s, from, at - from, StandardCharsets.UTF_8).trim(); // as it is written
                if (build) all.put(name, v);
            } while (take(','));
            if (!take('}')) throw BAD;
            return all;
        }

        private Object values(int depth) {
            List<Object> all = build ? new ArrayList<>() : null;
            at++;
            if (take(']')) return all;
            do {
                Object v = value(depth + 1);
                if (build) all.add(v);
            } while (take(','));
            if (!take(']')) throw BAD;
            return all;
        }

        private String text() {
            int from = ++at;
            boolean escapes = false;
            for (; at < s.length && s[at] != '"'; at++) {
                if (s[at] >= 0 && s[at] < ' ') throw BAD;
                if (s[at] != '\\') continue;
                escapes = true;
                if (++at >= s.length || "\"\\/bfnrtu".indexOf(s[at]) < 0) throw BAD;
                if (s[at] != 'u') continue;
                for (int i = 0; i < 4; i++) if (++at >= s.length || Character.digit(s[at], 16) < 0) throw BAD;
            }
            if (at >= s.length) throw BAD;
            at++;
            if (!build) return null;
            String raw = new String(s, from, at - 1 - from, StandardCharsets.UTF_8);
            return escapes ? unescape(raw) : raw;
        }

        private static String unescape(String raw) {
            StringBuilder b = new StringBuilder();
            for (int i = 0; i < raw.length(); i++) {
                char c = raw.charAt(i);
                if (c == '\\') {
                    c = raw.charAt(++i);
                    int known = "bfnrt".indexOf(c);
                    if (known >= 0) c = "\b\f\n\r\t".charAt(known);
                    if (c == 'u') {
                        c = (char) Integer.parseInt(raw.substring(i + 1, i + 5), 16);
                        i += 4;
                    }
                }
                b.append(c);
            }
            return b.toString();
        }

        private int digits() {
            int from = at;
            while (at < s.length && s[at] >= '0' && s[at] <= '9') at++;
            if (at == from) throw BAD;
            return at - from;
        }

        private Object number() {
            int from = at;
            if (at < s.length && s[at] == '-') at++;
            int first = at, n = digits();
            if (n > 1 && s[first] == '0') throw BAD;
            boolean whole = n <= 18;
            if (at < s.length && s[at] == '.') {
                at++;
                digits();
                whole = false;
            }
            if (at < s.length && (s[at] == 'e' || s[at] == 'E')) {
                at++;
                if (at < s.length && (s[at] == '+' || s[at] == '-')) at++;
                digits();
                whole = false;
            }
            if (!build) return null;
            String text = new String(s, from, at - from, StandardCharsets.US_ASCII);
            return whole ? (Object) Long.valueOf(text) : (Object) Double.valueOf(text);
        }
    }
}
