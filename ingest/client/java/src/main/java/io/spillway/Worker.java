package io.spillway;

import io.spillway.Queues.Failure;
import io.spillway.Queues.Http;
import io.spillway.Queues.Job;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/** Claims jobs, gives each to a handler, and tells the service what became of it. */
public final class Worker {
    /** How a Worker works. */
    public static final class Config {
        /** Handlers at once. */
        public int concurrency = 1;
        /** How long a job is leased; zero: as a rule for the queue says, or 1m. While its handler runs, the lease is prolonged each ttr/3. */
        public Duration ttr = Duration.ZERO;
        /** How long a request waits for jobs. */
        public Duration wait = Duration.ofSeconds(30);
        /** Bounds of the random time that a job waits after its handler failed, doubled each attempt. */
        public Duration backoffBase = Duration.ofSeconds(1), backoffMax = Duration.ofMinutes(10);
        /** How long handlers may go on after stop. Then their threads are interrupted. */
        public Duration stopTimeout = Duration.ofSeconds(30);
        /** How long to go on while the service rejects the token or the namespace; null: for ever. */
        public Duration giveUpAfter;
        /** Told of each handler and settlement that failed, from several threads. */
        public BiConsumer<Job, Throwable> onError = (job, e) -> { };
        /** Told of each claim that failed; null: a warning of System.Logger, of each kind once a minute at most. */
        public Consumer<Failure> onRequestError;
    }

    /** Does a job. What it throws decides: nothing is an ack, anything but the exceptions below a nack with a back-off. */
    public interface Handler {
        /**
         * The thread is interrupted when lease says that the handler is to end. What it returns, other than null, is the job's
         * result: what is not JSON of 4 KiB at most is told to onError, and left out.
         */
        String handle(Job job, Lease lease) throws Exception;
    }

    /** Why a handler is told to end. */
    public enum Cause { LEASE_LOST, STOPPED }

    /** Thrown by a handler: the job is buried. */
    public static final class Permanent extends Exception {
        private static final long serialVersionUID = 1;

        /** error says why. */
        public Permanent(String error) {
            super(error);
        }
    }

    /** Thrown by a handler: the job is ready again after a time. */
    public static final class RetryIn extends Exception {
        private static final long serialVersionUID = 1;
        private final Duration after;

        /** error says why. */
        public RetryIn(String error, Duration after) {
            super(error);
            this.after = after;
        }
    }

    /** Thrown by a handler: the job goes back to the head of its queue, and the attempt does not count. */
    public static final class NotBegun extends Exception {
        private static final long serialVersionUID = 1;
    }

    /** That of a job whose handler runs. */
    public final class Lease {
        private final Job job;
        private final Thread thread = Thread.currentThread();
        private long end; // at the latest
        private int failures;
        private final Object touching = new Object(); // held during a touch
        private boolean over;
        private volatile Cause cause;
        private ScheduledFuture<?> timer;

        private Lease(Job job, long claimed) {
            this.job = job;
            end = claimed + Http.millis(job.ttr);
            next(Http.millis(job.ttr) / 3);
        }

        /** Why the handler is to end; null: it may go on. */
        public Cause cause() {
            return cause;
        }

        private synchronized void tell(Cause why) {
            if (over || cause != null) return;
            cause = why;
            thread.interrupt();
        }

        private Cause over() {
            synchronized (this) {
                over = true;
                timer.cancel(false);
            }
            synchronized (touching) { // one under way ends first
                return cause;
            }
        }

        private synchronized void next(long ms) {
            if (!over) timer = timers.schedule(() -> threads.execute(() -> {
                synchronized (touching) {
                    touch();
                }
            }), Math.max(ms, 0), TimeUnit.MILLISECONDS);
        }

        private void touch() {
            long sent = Http.clock(), ttr = Http.millis(job.ttr);
            synchronized (this) {
                if (over || cause != null) return;
            }
            if (sent >= end) {
                tell(Cause.LEASE_LOST);
                return;
            }
            job.deadlineMs = 0; // its answer may be lost, or late
            try { // one request that hangs must not take the time of all
                Failure f = queues.settle(job.queue, List.of(Queues.line(job, "touch", ttr, "", "")), 1, Math.min(end - sent, ttr / 3)).get(0);
                if (f != null) throw f;
                failures = 0;
                end = sent + ttr;
                next(ttr / 3 - (Http.clock() - sent));
            } catch (Failure f) {
                if (f.kind == Queues.Kind.GONE) {
                    tell(Cause.LEASE_LOST);
                    return;
                }
                long wait = Http.backoff(queues.config.backoffBase, queues.config.backoffMax, ++failures);
                next(Math.min(Math.max(wait, 1), end - Http.clock()));
            }
        }
    }

    private static final class Ending {
        final Job job;
        final String line;
        final CompletableFuture<Void> settled = new CompletableFuture<>();

        Ending(Job job, String verb, long ms, String error, String more) {
            this.job = job;
            line = Queues.line(job, verb, ms, error, more);
        }
    }

    private static final int MAX_CLAIM = 1000;
    private static final long SETTLE_TIMEOUT = 2000; // ms, without patience

    private final Queues queues;
    private final List<String> names;
    private final Handler handler;
    private final Config config;
    private final Http.Guest ofJobs = new Http.Guest(), ofClaims = new Http.Guest();
    private final Semaphore slots;
    private final Http.Abort claim = new Http.Abort();
    private final CountDownLatch stopped = new CountDownLatch(1), impatient = new CountDownLatch(1);
    private final Set<Lease> leases = ConcurrentHashMap.newKeySet();
    private final Map<String, LinkedBlockingQueue<Ending>> endings = new HashMap<>();
    private final ExecutorService threads = Executors.newCachedThreadPool(Worker::daemon);
    private final ScheduledExecutorService timers = Executors.newSingleThreadScheduledExecutor(Worker::daemon);

    /** A worker of these queues, the most wanted first. Throws IllegalArgumentException for what cannot work. */
    public Worker(Queues queues, List<String> names, Handler handler, Config config) {
        if (config.concurrency < 1 || config.ttr.isNegative() || config.wait.toMillis() < 1 || config.stopTimeout.isNegative()
                || config.backoffBase.isNegative() || config.backoffMax.compareTo(config.backoffBase) < 0) {
            throw new IllegalArgumentException("spillway: concurrency and wait are more than 0, backoffMax at least backoffBase");
        }
        this.queues = queues;
        this.names = List.copyOf(names);
        this.handler = handler;
        this.config = config;
        slots = new Semaphore(config.concurrency);
    }

    private static Thread daemon(Runnable r) {
        Thread t = new Thread(r, "spillway-worker");
        t.setDaemon(true);
        return t;
    }

    /** Tells run to end. It may be called from any thread, more than once. */
    public synchronized void stop() {
        if (stopped.getCount() == 0) return;
        stopped.countDown();
        claim.end();
        slots.release(); // wakes run
    }

    /**
     * Works until stop, or an interrupt: then it claims no more, waits for the handlers and returns. It runs once. It throws a
     * Failure only if the service rejects its requests, those with its token only after giveUpAfter. While the service
     * cannot be reached, it waits with a back-off.
     */
    public void run() {
        for (String name : names) {
            LinkedBlockingQueue<Ending> list = new LinkedBlockingQueue<>();
            if (endings.putIfAbsent(name, list) == null) threads.execute(() -> settler(name, list));
        }
        boolean interrupted = false;
        try {
            claims();
        } catch (InterruptedException e) {
            interrupted = true;
        } finally {
            ScheduledFuture<?> hurry = timers.schedule(this::hurry, Http.millis(config.stopTimeout), TimeUnit.MILLISECONDS);
            boolean stop = stopped.getCount() == 0; // which gave a permit of its own
            slots.acquireUninterruptibly(config.concurrency + (stop ? 1 : 0));
            hurry.cancel(false);
            threads.shutdownNow(); // settlers wait for nothing any more
            timers.shutdownNow();
            if (interrupted) Thread.currentThread().interrupt();
        }
    }

    private void hurry() {
        impatient.countDown();
        for (Lease l : leases) l.tell(Cause.STOPPED);
    }

    private void claims() throws InterruptedException {
        Consumer<Failure> told = config.onRequestError == null ? Http.warner(queues.base) : config.onRequestError;
        long barred = 0; // since when the service has rejected the token or the namespace
        for (int failures = 0;;) {
            slots.acquire();
            int held = 1;
            while (held < Math.min(config.concurrency, MAX_CLAIM) && slots.tryAcquire()) held++;
            List<Job> jobs = List.of();
            long wait = 0;
            try {
                if (stopped.getCount() == 0) return;
                long sent = Http.clock();
                jobs = queues.claim(names, held, config.ttr, config.wait, 1, claim);
                long claimed = Math.max(sent, Http.clock());
                for (Job job : jobs) threads.execute(() -> work(job, claimed));
                failures = 0;
                barred = 0;
            } catch (Failure f) {
                if (Thread.interrupted()) throw new InterruptedException();
                if (stopped.getCount() == 0) return;
                ofClaims.call(() -> told.accept(f));
                long now = Http.clock();
                if (!f.barred()) {
                    barred = 0;
                    if (!f.temporary()) throw f;
                } else if (barred == 0) {
                    barred = now;
                }
                if (barred != 0 && config.giveUpAfter != null && now - barred >= config.giveUpAfter.toMillis()) throw f;
                wait = Math.max(Http.backoff(queues.config.backoffBase, queues.config.backoffMax, ++failures),
                        Math.max(f.retryAfter.toMillis(), 1));
            } finally {
                slots.release(held - jobs.size());
            }
            stopped.await(wait, TimeUnit.MILLISECONDS);
        }
    }

    private void work(Job job, long claimed) {
        try {
            if (stopped.getCount() == 0) { // it came with the last answer
                settle(job, "requeue", 0, "", "");
                return;
            }
            Lease lease = new Lease(job, claimed);
            leases.add(lease);
            if (impatient.getCount() == 0) lease.tell(Cause.STOPPED);
            Throwable thrown = null;
            String result = null;
            try {
                result = handler.handle(job, lease);
            } catch (Throwable e) { // also a StackOverflowError, which is of this job alone
                thrown = e;
            }
            Cause cause = lease.over();
            leases.remove(lease);
            Thread.interrupted();
            ended(job, thrown, cause, result);
        } finally {
            slots.release();
        }
    }

    private void failed(Job job, Throwable error) {
        if (config.onError != null) ofJobs.call(() -> config.onError.accept(job, error));
    }

    /** What an exception of the handler says, whatever its class does. */
    private static String text(Throwable thrown) {
        try {
            return thrown.getMessage() == null ? thrown.toString() : thrown.getMessage();
        } catch (Throwable fault) {
            return thrown.getClass().getName();
        }
    }

    private void ended(Job job, Throwable thrown, Cause cause, String result) {
        if (thrown != null && !(thrown instanceof NotBegun)) failed(job, thrown);
        String error = thrown == null ? "" : text(thrown);
        if (thrown == null) {
            String more = "";
            try {
                more = Queues.result(result);
            } catch (Failure f) {
                failed(job, f);
            }
            settle(job, "ack", 0, "", more); // which counts after the lease, too
        } else if (cause == Cause.LEASE_LOST) {
            return;
        } else if (thrown instanceof NotBegun) {
            settle(job, "requeue", 0, "", "");
        } else if (thrown instanceof Permanent) {
            settle(job, "bury", 0, error, "");
        } else if (thrown instanceof RetryIn) {
            settle(job, "nack", Http.millis(((RetryIn) thrown).after), error, "");
        } else if (cause == Cause.STOPPED) { // which is not the job's fault
            settle(job, "requeue", 0, "", "");
        } else {
            settle(job, "nack", Http.backoff(config.backoffBase, config.backoffMax, job.attempt), error, "");
        }
    }

    /** Returns when the service has answered, or run has no patience any more. */
    private void settle(Job job, String verb, long ms, String error, String more) {
        Ending e = new Ending(job, verb, ms, error, more);
        endings.get(e.job.queue).add(e);
        e.settled.join();
    }

    /** Settles the jobs of one queue, one request at a time: what ends during one goes together in the next. */
    private void settler(String queue, LinkedBlockingQueue<Ending> list) {
        try {
            List<Ending> waiting = new ArrayList<>();
            for (int failures = 0;;) {
                if (waiting.isEmpty()) waiting.add(list.take());
                list.drainTo(waiting);
                waiting = send(queue, waiting);
                failures = waiting.isEmpty() ? 0 : failures + 1;
                if (failures == 0) continue;
                long wait = Http.backoff(queues.config.backoffBase, queues.config.backoffMax, failures) + 1;
                impatient.await(wait, TimeUnit.MILLISECONDS);
            }
        } catch (InterruptedException e) {
            return; // run has ended
        }
    }

    /** Sends endings once, and returns those to be sent again. */
    private List<Ending> send(String queue, List<Ending> batch) {
        boolean last = impatient.getCount() == 0;
        List<String> lines = new ArrayList<>();
        for (Ending e : batch) lines.add(e.line);
        List<Failure> failures;
        try {
            failures = queues.settle(queue, lines, 1, last ? SETTLE_TIMEOUT : 0);
        } catch (Failure f) {
            int half = batch.size() / 2;
            if (f.kind == Queues.Kind.TOO_LARGE && half > 0) {
                List<Ending> again = send(queue, batch.subList(0, half));
                again.addAll(send(queue, batch.subList(half, batch.size())));
                return again;
            }
            failures = new ArrayList<>();
            for (int i = 0; i < batch.size(); i++) failures.add(f);
        }
        List<Ending> again = new ArrayList<>();
        for (int i = 0; i < batch.size(); i++) {
            Ending e = batch.get(i);
            Failure f = failures.get(i);
            if (f != null && f.kind != Queues.Kind.GONE) {
                failed(e.job, f);
                if (!last && (f.temporary() || f.barred())) {
                    again.add(e);
                    continue;
                }
            }
            e.settled.complete(null);
        }
        return again;
    }
}
