<?php

declare(strict_types=1);

namespace Spillway;

/**
 * Claims jobs, one at a time, and gives each to a handler. What the handler throws decides: nothing is an ack, Permanent a
 * bury, RetryIn a nack for its time, NotBegun a requeue, anything else a nack with a back-off. What it returns, other than
 * null, is the job's result: what is not JSON of 4 KiB at most is told to on_error, and left out.
 *
 * With ext-pcntl, SIGTERM and SIGINT stop the worker, the lease is prolonged each ttr/3 while the handler runs, and a
 * handler whose lease is lost, or that runs on for stop_timeout after a signal, gets an Ended thrown into it. Without it, the
 * handler calls the lease's touch.
 *
 * Options, times in seconds: ttr (as a rule for the queue says, or 60), wait (30: how long a request waits for jobs), backoff_base and backoff_max (1, 600: bound
 * the random time that a job waits after its handler failed, doubled each attempt), stop_timeout (30), give_up_after (null: for
 * ever; how long to go on while the service rejects the token or the namespace), on_error (told of each handler and settlement
 * that failed: Job, Throwable), on_request_error (told of each claim that failed: Failure; default error_log, once a minute at
 * most of each kind).
 */
final class Worker
{
    private const DEFAULTS = [
        'ttr' => 0, 'wait' => 30, 'backoff_base' => 1, 'backoff_max' => 600, 'stop_timeout' => 30, 'give_up_after' => null,
        'on_error' => null, 'on_request_error' => null,
    ];
    private const SETTLE_TIMEOUT = 2; // without patience

    private Queues $queues;
    private Queues $settler; // whose requests no stop ends
    /** @var string[] */
    private array $names;
    private \Closure $handler;
    /** @var array<string, mixed> */
    private array $o;
    private ?float $stopped = null; // when

    /**
     * @param string[]             $names   of the queues, the most wanted first
     * @param callable             $handler called with a Job and its Lease
     * @param array<string, mixed> $options
     */
    public function __construct(Queues $queues, array $names, callable $handler, array $options = [])
    {
        $this->o = Queues::options(self::DEFAULTS, $options);
        if ($this->o['ttr'] < 0 || $this->o['wait'] <= 0 || $this->o['stop_timeout'] < 0 || $this->o['backoff_max'] < $this->o['backoff_base']) {
            throw new \InvalidArgumentException('spillway: wait is more than 0, backoff_max at least backoff_base');
        }
        $this->o['on_request_error'] = Queues::guest($this->o['on_request_error'] ?? Queues::warner($queues->base));
        $this->o['on_error'] = Queues::guest($this->o['on_error']);
        $this->queues = clone $queues;
        $this->queues->stopped = function (): bool { return $this->stopped !== null; };
        $this->settler = clone $queues;
        $this->names = $names;
        $this->handler = \Closure::fromCallable($handler);
    }

    /** Tells run to end: from a handler, or from a signal. */
    public function stop(): void
    {
        $this->stopped = $this->stopped ?? microtime(true);
    }

    /**
     * Works until stop, and returns when the last handler has ended. It throws a Failure only if the service rejects its
     * requests, those with its token only after give_up_after. While the service cannot be reached, it waits with a back-off.
     */
    public function run(): void
    {
        $signals = function_exists('pcntl_async_signals');
        if ($signals) {
            pcntl_async_signals(true);
            foreach ([SIGTERM, SIGINT] as $signal) {
                pcntl_signal($signal, function (): void { $this->stop(); });
            }
        }
        try {
            $this->claims();
        } finally {
            if ($signals) {
                pcntl_signal(SIGTERM, SIG_DFL);
                pcntl_signal(SIGINT, SIG_DFL);
            }
        }
    }

    private function claims(): void
    {
        $failures = 0;
        $barred = null; // since when the service has rejected the token or the namespace
        while ($this->stopped === null) {
            try {
                $jobs = $this->queues->claim($this->names, ['ttr' => $this->o['ttr'], 'wait' => $this->o['wait'], 'attempts' => 1]);
                $failures = 0;
                $barred = null;
            } catch (Failure $f) {
                if ($this->stopped !== null) {
                    return;
                }
                ($this->o['on_request_error'])($f);
                $barred = $f->barred() ? $barred ?? microtime(true) : null;
                $out = $barred !== null && $this->o['give_up_after'] !== null && microtime(true) - $barred >= $this->o['give_up_after'];
                if ($out || $barred === null && !$f->temporary()) {
                    throw $f;
                }
                $this->rest(max($this->queues->pause(++$failures), $f->retryAfter, 0.001));
                continue;
            }
            foreach ($jobs as $job) {
                if ($this->stopped === null) {
                    $this->work($job);
                } else { // it came with the last answer
                    $this->settle($job, 'requeue');
                }
            }
        }
    }

    /** Sleeps, until stop or for seconds. */
    private function rest(float $seconds): void
    {
        for ($end = microtime(true) + $seconds; $this->stopped === null && ($left = $end - microtime(true)) > 0;) {
            usleep((int) (min($left, 0.2) * 1e6));
        }
    }

    private function work(Job $job): void
    {
        $lease = new Lease($this->queues, $job, $job->ttr, function (): ?float {
            return $this->stopped === null ? null : $this->stopped + $this->o['stop_timeout'];
        });
        $thrown = $result = null;
        try {
            $lease->begin();
            $result = ($this->handler)($job, $lease);
        } catch (\Throwable $e) {
            $thrown = $e;
        }
        $lease->end();
        if ($thrown !== null && !$thrown instanceof NotBegun) {
            ($this->o['on_error'])($job, $thrown);
        }
        $error = $thrown === null ? '' : $thrown->getMessage();
        $after = Queues::backoff((float) $this->o['backoff_base'], (float) $this->o['backoff_max'], $job->attempt);
        if ($thrown === null) {
            $more = [];
            try {
                $more = Queues::result($result);
            } catch (Failure $f) {
                ($this->o['on_error'])($job, $f);
            }
            $this->settle($job, 'ack', 0, '', $more); // which counts after the lease, too
        } elseif ($lease->cause === Lease::LOST) {
            return;
        } elseif ($thrown instanceof NotBegun) {
            $this->settle($job, 'requeue');
        } elseif ($thrown instanceof Permanent) {
            $this->settle($job, 'bury', 0, $error);
        } elseif ($thrown instanceof RetryIn) {
            $this->settle($job, 'nack', $thrown->after, $error);
        } elseif ($lease->cause === Lease::STOPPED) { // which is not the job's fault
            $this->settle($job, 'requeue');
        } else {
            $this->settle($job, 'nack', $after, $error);
        }
    }

    /**
     * Returns when the service has answered, or run has no patience any more.
     *
     * @param array<string, mixed> $more of the line
     */
    private function settle(Job $job, string $do, float $after = 0, string $error = '', array $more = []): void
    {
        for ($failures = 1;; $failures++) {
            $last = $this->stopped !== null && microtime(true) >= $this->stopped + $this->o['stop_timeout'];
            try {
                $this->settler->settle($job, $do, $after, $error, ['attempts' => 1] + ($last ? ['timeout' => self::SETTLE_TIMEOUT] : []), $more);
                return;
            } catch (Failure $f) {
                if ($f->kind === 'gone') {
                    return; // it comes again, or was acked by an attempt whose answer was lost
                }
                ($this->o['on_error'])($job, $f);
                if ($last || !$f->temporary() && !$f->barred()) {
                    return;
                }
            }
            Queues::sleep(max($this->queues->pause($failures), 0.001));
        }
    }
}

/** That of a job whose handler runs. */
final class Lease
{
    public const LOST = 'lease_lost';
    public const STOPPED = 'stopped';

    /** Why the handler is to end: LOST, STOPPED, or empty: it may go on. */
    public string $cause = '';
    private Queues $queues;
    private Job $job;
    private float $ttr;
    private \Closure $patience;
    private float $end; // at the latest
    private float $due;
    private bool $over = false;

    /** @internal */
    public function __construct(Queues $queues, Job $job, float $ttr, \Closure $patience)
    {
        $this->queues = clone $queues; // for a signal may come while a handler uses the other
        $this->job = $job;
        $this->ttr = max(3, $ttr); // an alarm comes after whole seconds, so a lease of less is prolonged at once
        $this->patience = $patience;
        $this->end = microtime(true) + $ttr;
        $this->due = $this->end - max(2, $ttr * 2 / 3);
    }

    /** @internal */
    public function begin(): void
    {
        if (function_exists('pcntl_async_signals')) {
            pcntl_signal(SIGALRM, function (): void { $this->tick(); });
            pcntl_alarm(1);
            if (microtime(true) >= $this->due) {
                $this->touch();
            }
        }
    }

    /** @internal */
    public function end(): void
    {
        $this->over = true;
        if (function_exists('pcntl_async_signals')) {
            pcntl_alarm(0);
            pcntl_signal(SIGALRM, SIG_IGN);
        }
    }

    private function tick(): void
    {
        if ($this->over || $this->cause !== '') {
            return;
        }
        pcntl_alarm(1);
        $patience = ($this->patience)();
        if ($patience !== null && microtime(true) >= $patience) {
            $this->cause = self::STOPPED;
        } elseif (microtime(true) >= $this->due) {
            $this->touch();
        }
        if ($this->cause !== '') {
            throw new Ended("the handler is to end: $this->cause");
        }
    }

    /** Prolongs the lease by ttr; false when it is lost. Within a second of the last touch it does nothing. */
    public function touch(): bool
    {
        $now = microtime(true);
        if ($this->cause === '' && $now >= $this->end) {
            $this->cause = self::LOST;
        }
        if ($this->cause !== '' || $now < $this->end - $this->ttr + min(1, $this->ttr / 3)) {
            return $this->cause === '';
        }
        try { // one request that hangs must not take the time of all, nor much of the handler's
            $this->queues->settle($this->job, 'touch', $this->ttr, '', ['attempts' => 1, 'timeout' => min($this->end - $now, $this->ttr / 6)]);
            $this->end = $now + $this->ttr;
            $this->due = $now + $this->ttr / 3;
        } catch (Failure $f) {
            if ($f->kind === 'gone') {
                $this->cause = self::LOST;
            }
        }
        return $this->cause === '';
    }
}

/** Thrown into a handler that is to end. */
final class Ended extends \RuntimeException
{
}

/** Thrown by a handler: the job is buried. */
final class Permanent extends \RuntimeException
{
}

/** Thrown by a handler: the job goes back to the head of its queue, and the attempt does not count. */
final class NotBegun extends \RuntimeException
{
}

/** Thrown by a handler: the job is ready again after seconds. */
final class RetryIn extends \RuntimeException
{
    public float $after;

    public function __construct(string $error, float $after)
    {
        parent::__construct($error);
        $this->after = $after;
    }
}
