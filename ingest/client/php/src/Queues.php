<?php

declare(strict_types=1);

namespace Spillway;

/**
 * Publishes and claims the jobs of a namespace's queues. It keeps nothing: each call is a request, which throws Failure.
 * Times are seconds, fractions too.
 *
 * Options of the constructor: namespace ("default"), token (none), timeout (10: bounds one attempt, beyond what a claim
 * waits), attempts (4: how often a request is tried while the service cannot be reached, is overloaded or limits the rate),
 * backoff_base and backoff_max (0.1, 5: bound the random time between attempts, which is as long as Retry-After says at least).
 */
final class Queues
{
    private const DEFAULTS = [
        'namespace' => 'default', 'token' => '', 'timeout' => 10, 'attempts' => 4, 'backoff_base' => 0.1, 'backoff_max' => 5,
    ];
    private const MAX_ANSWER = 64 << 20;
    private const MAX_ERROR = 1 << 10;
    private const MAX_RESULT = 4 << 10;
    private const MAX_AFTER = 30 * 86400;
    private const JSON = JSON_UNESCAPED_UNICODE | JSON_THROW_ON_ERROR;

    /** @var array<string, mixed> */
    private array $o;
    /** @internal */
    public string $base;
    private Http $http;
    /** Asked while a request waits; true gives it up. Null: never. */
    public ?\Closure $stopped = null;

    /** @param array<string, mixed> $options */
    public function __construct(string $url, array $options = [])
    {
        $this->o = self::options(self::DEFAULTS, $options);
        if ($this->o['attempts'] < 1 || $this->o['timeout'] <= 0 || $this->o['backoff_max'] < $this->o['backoff_base']) {
            throw new \InvalidArgumentException('spillway: attempts and timeout are more than 0, backoff_max at least backoff_base');
        }
        $this->base = self::endpoint($url, $this->o['namespace']) . '/';
        $this->http = self::http($this->o['token']);
    }

    /** A copy has a connection of its own: for use in a handler of a signal. */
    public function __clone()
    {
        $this->http = self::http($this->o['token']);
        $this->stopped = null;
    }

    /**
     * Stores a job. All attempts have one Idempotency-Key, so that it is stored once.
     *
     * @param array<string, mixed> $options delay, at (a DateTimeInterface instead), ttl, tries, id (your own name), shards (so many jobs), key (a repeat within dedup, 120, stores nothing),
     *                                      on_end (the queue that hears of the end), attributes (by name), unique (for so long no
     *                                      other is stored under unique_key, or id), on_conflict (what a double does to the first
     *                                      while that is delayed: keep, replace or extend)
     */
    public function publish(string $queue, string $payload, array $options = []): Published
    {
        if ($payload === '') {
            throw new Failure('empty', 'a job is at least a byte');
        }
        return $this->store($queue, 'application/octet-stream', $payload, $options);
    }

    /**
     * Stores several jobs, all or none, whose payloads have no line break: 1000 and 1 MiB at most by default.
     *
     * @param string[]             $payloads
     * @param array<string, mixed> $options  as of publish
     */
    public function publishMany(string $queue, array $payloads, array $options = []): Published
    {
        foreach ($payloads as $payload) {
            if ($payload === '') {
                throw new Failure('empty', 'a job is at least a byte');
            }
            if (strpos($payload, "\n") !== false || substr($payload, -1) === "\r") {
                throw new Failure('invalid', 'a payload has a line break: publish it alone');
            }
        }
        if ($payloads === []) {
            throw new Failure('empty', 'no job');
        }
        return $this->store($queue, 'application/x-ndjson', implode("\n", $payloads) . "\n", $options);
    }

    /** @param array<string, mixed> $options */
    private function store(string $queue, string $type, string $body, array $options): Published
    {
        $o = self::options(['delay' => 0, 'at' => null, 'ttl' => 0, 'tries' => 0, 'id' => '', 'shards' => 0, 'key' => '', 'dedup' => 0, 'on_end' => '', 'attributes' => [],
            'unique' => 0, 'unique_key' => '', 'on_conflict' => ''], $options);
        $own = $o['key'] !== '';
        $query = ['delay' => self::ms($o['delay']), 'at' => $o['at'] ? $o['at']->format('Y-m-d\TH:i:s.vP') : '', 'shards' => $o['shards'], 'ttl' => self::ms($o['ttl']), 'tries' => $o['tries'], 'id' => $o['id'],
            'on_end' => $o['on_end'], 'dedup' => $own ? self::ms($o['dedup']) : '', 'unique' => self::ms($o['unique']),
            'unique_key' => $o['unique_key'], 'on_conflict' => $o['on_conflict']];
        foreach ($o['attributes'] as $name => $value) {
            $query["attribute.$name"] = $value;
        }
        $said = $this->run('POST', self::checked([$queue]), $query, $body, [
            'type' => $type, 'key' => $own ? $o['key'] : self::key(), 'remembered' => ($own && $o['dedup'] > 0 ? $o['dedup'] : 120) / 12 * 11,
        ]);
        if (isset($said->evicted)) {
            throw Failure::buffer();
        }
        $ids = self::list($said->ids ?? null);
        if ($ids === [] || array_filter($ids, static function ($id) { return !is_string($id) || $id === ''; }) !== []) {
            throw self::foreign();
        }
        $published = new Published();
        $published->ids = $ids;
        $published->repeated = $own && ($said->repeated ?? false) === true;
        $published->exists = ($said->exists ?? false) === true;
        $published->changed = ($said->changed ?? false) === true;
        return $published;
    }

    /**
     * Leases up to count jobs of queues, the most wanted queue first, for ttr, and waits for the first. Each is to be settled
     * before its ttr is over, or it comes again. A Worker does all this.
     *
     * @param string[]             $queues
     * @param array<string, mixed> $options count (1), ttr (as a rule for the queue says, or 60), wait (0), attempts (as of the constructor)
     *
     * @return Job[]
     */
    public function claim(array $queues, array $options = []): array
    {
        $o = self::options(['count' => 0, 'ttr' => 0, 'wait' => 0, 'attempts' => $this->o['attempts']], $options);
        $query = ['count' => $o['count'], 'ttr' => self::ms($o['ttr']), 'wait' => self::ms($o['wait'])];
        $said = $this->run('POST', self::checked($queues) . '/claim', $query, '', ['attempts' => $o['attempts'], 'wait' => $o['wait'], 'fresh' => true]);
        $jobs = array_map([Job::class, 'read'], self::list($said->jobs ?? null));
        foreach ($jobs as $job) {
            if (!in_array($job->queue, $queues, true) || count($jobs) > max(1, $o['count'])) {
                throw self::foreign();
            }
        }
        return $jobs;
    }

    /**
     * The job is done, also when its lease is over. A Failure that is gone: it was acked or deleted before, or it expired.
     *
     * @param mixed $result of the work, as JSON of 4 KiB at most, which wait and follow-ups tell; null: none
     */
    public function ack(Job $job, $result = null): void
    {
        $this->settle($job, 'ack', 0, '', [], self::result($result));
    }

    /**
     * @internal What the line of an ack says of a result; null: nothing. A Failure that is invalid: it is not JSON of 4 KiB at most.
     *
     * @return array<string, mixed>
     */
    public static function result($result): array
    {
        try {
            $n = strlen(json_encode($result, self::JSON, 511)); // one less than json_encode takes, for the line
        } catch (\Throwable $e) {
            throw new Failure('invalid', 'the result is not JSON: ' . $e->getMessage());
        }
        if ($n > self::MAX_RESULT) {
            throw new Failure('invalid', "the result has $n bytes, " . self::MAX_RESULT . ' at most');
        }
        return $result === null ? [] : ['result' => $result];
    }

    /** Gives a job back, ready again after a while (30 days at most). error says why: 1 KiB of it. */
    public function nack(Job $job, float $after = 0, string $error = ''): void
    {
        $this->settle($job, 'nack', $after, $error);
    }

    /** Gives a job up: it is dead, and stays to be looked at. */
    public function bury(Job $job, string $error = ''): void
    {
        $this->settle($job, 'bury', 0, $error);
    }

    /** Leases a job for ttr from now on. */
    public function touch(Job $job, float $ttr = 60): void
    {
        $this->settle($job, 'touch', $ttr);
    }

    /**
     * Says how far the work got, in percent, and a note of which 200 bytes are kept: get has both. It is a touch, for ttr, or
     * as long as the job was claimed for.
     */
    public function progress(Job $job, int $percent, string $note = '', float $ttr = 0): void
    {
        $this->settle($job, 'touch', $ttr > 0 ? $ttr : $job->ttr, '', [], ['progress' => $percent, 'note' => $note]);
    }

    /** Leases a job for ttr from now on; somebody else settles it, who has its queue, id and attempt. */
    public function defer(Job $job, float $ttr): void
    {
        $this->settle($job, 'defer', $ttr);
    }

    /** Gives a job of a queue of PHP's back, whatever its try. */
    public function release(Job $job, float $after = 0): void
    {
        $this->settle($job, 'release', $after);
    }

    /** Gives a job back to the head of its queue, as if it had not been claimed. It is sent once. */
    public function requeue(Job $job): void
    {
        $job->deadlineMs = 0; // whoever has the job may have touched a copy of it
        $this->settle($job, 'requeue', 0, '', ['attempts' => 1]);
    }

    /**
     * What became of a delivery, in one line. It can be repeated, for it changes only the delivery that it names.
     *
     * @param array<string, mixed> $how  attempts, timeout
     * @param array<string, mixed> $more of the line
     */
    public function settle(Job $job, string $do, float $after = 0, string $error = '', array $how = [], array $more = []): void
    {
        if ($do === 'nack' || $do === 'release' || $do === 'defer') {
            $after = min(max($after, 0), self::MAX_AFTER);
        }
        $line = ['id' => $job->id, 'attempt' => $job->attempt, 'do' => $do] + $more;
        if ($after > 0) {
            $line['ms'] = (int) ceil($after * 1000);
        }
        if ($do === 'touch') {
            $job->deadlineMs = 0; // it moves, and its answer may be lost
        }
        if ($do === 'requeue' && $job->deadlineMs > 0) { // for the next delivery has the same attempt
            $line['deadline_ms'] = $job->deadlineMs;
        }
        $n = min(strlen($error), self::MAX_ERROR);
        while ($n < strlen($error) && (ord($error[$n]) & 0xc0) === 0x80) {
            $n--; // cut at a character
        }
        if ($n > 0) {
            $line['error'] = substr($error, 0, $n);
        }
        $body = json_encode($line, self::JSON | JSON_INVALID_UTF8_SUBSTITUTE) . "\n";
        $maybe = false;
        $said = $this->run('POST', self::checked([$job->queue]) . '/settle', [], $body, $how + ['type' => 'application/x-ndjson'], $maybe);
        $results = self::list($said->results ?? null);
        if (count($results) !== 1 || !is_object($results[0])) {
            throw self::foreign();
        }
        if (is_string($results[0]->error ?? null)) {
            throw new Failure(Failure::KINDS[$results[0]->error] ?? 'invalid', (string) json_encode($results[0]), 200, $results[0]->error);
        }
        if (!is_string($results[0]->state ?? null)) {
            throw self::foreign();
        }
        if ($results[0]->state === 'gone' && !$maybe) { // otherwise most likely because of an attempt whose answer was lost
            throw new Failure('gone', 'the job is not leased to this attempt any more', 200);
        }
    }

    /** The job in whatever state it is; a Failure that is no_job: there is none. */
    public function get(string $queue, string $id): Job
    {
        return $this->wait($queue, $id, 0);
    }

    /**
     * The job once it has ended: acked where a rule keeps it, gone where none does, dead; after wait, 600 at most, in the state
     * that it is in; or no_job, also of one that ended unkept before. So look at state first.
     */
    public function wait(string $queue, string $id, float $wait = 30): Job
    {
        $path = self::checked([$queue]) . '/jobs/' . rawurlencode($id);
        return Job::read($this->run('GET', $path, ['wait' => self::ms($wait)], '', ['wait' => $wait]));
    }

    /** The job that is claimed next, or no_job. */
    public function peek(string $queue): Job
    {
        return Job::read($this->run('GET', self::checked([$queue]) . '/peek'));
    }

    /** Ends a job in whatever state it is, or no_job. */
    public function delete(string $queue, string $id): void
    {
        $maybe = false;
        try {
            $said = $this->run('DELETE', self::checked([$queue]) . '/jobs/' . rawurlencode($id), [], '', [], $maybe);
        } catch (Failure $f) {
            if ($f->kind === 'no_job' && $maybe) {
                return; // most likely because of an attempt whose answer was lost
            }
            throw $f;
        }
        if (!is_string($said->state ?? null)) {
            throw self::foreign();
        }
    }

    /**
     * Jobs of a queue: ready, delayed, leased, dead. Delayed and leased are -1 where the service has too many to tell them apart.
     *
     * @return array<string, int>
     */
    public function counts(string $queue): array
    {
        $said = $this->run('GET', self::checked([$queue]));
        if (!is_int($said->ready ?? null)) {
            throw self::foreign();
        }
        return ['ready' => $said->ready, 'delayed' => $said->delayed ?? -1, 'leased' => $said->leased ?? -1, 'dead' => $said->dead ?? 0];
    }

    /**
     * Makes attempts until one is answered for good. maybe becomes whether one before may have done what was asked.
     *
     * @param array<string, mixed> $query
     * @param array<string, mixed> $how   type, key, remembered, attempts, timeout, wait, fresh
     */
    private function run(string $method, string $path, array $query = [], string $body = '', array $how = [], bool &$maybe = false): \stdClass
    {
        $query = array_filter($query, static function ($v, $name) {
            return $v !== '' && $v !== 0 || strpos($name, 'attribute.') === 0;
        }, ARRAY_FILTER_USE_BOTH);
        $url = $this->base . $path . ($query === [] ? '' : '?' . http_build_query($query, '', '&', PHP_QUERY_RFC3986));
        $headers = isset($how['type']) ? ['Content-Type: ' . $how['type']] : [];
        if (isset($how['key'])) {
            $headers[] = 'Idempotency-Key: ' . $how['key'];
        }
        $forgotten = INF; // when the service may not know the key of an attempt that may have been done
        for ($attempt = 1;; $attempt++) {
            $sent = microtime(true);
            $timeout = min(($how['timeout'] ?? $this->o['timeout']) + ($how['wait'] ?? 0), $forgotten - $sent);
            $a = $this->http->send($method, $url, $body, $headers, $timeout, self::MAX_ANSWER, $how['fresh'] ?? false, $this->stopped);
            if ($a->status === 200 || $a->status === 201) {
                if ($a->said === null) {
                    throw self::foreign();
                }
                return $a->said;
            }
            $failed = Failure::of($a);
            if (!$failed->temporary()) {
                throw $failed;
            }
            if ($failed->kind === 'unknown' && !$maybe) {
                $maybe = true;
                $forgotten = isset($how['key']) ? $sent + $how['remembered'] : INF;
            }
            if ($maybe) {
                $failed->kind = 'unknown';
            }
            $wait = max(self::backoff((float) $this->o['backoff_base'], (float) $this->o['backoff_max'], $attempt), $failed->retryAfter);
            if ($attempt >= ($how['attempts'] ?? $this->o['attempts']) || microtime(true) + $wait > $forgotten || $a->over) {
                throw $failed;
            }
            self::sleep($wait);
        }
    }

    /** Between two attempts after n failures: a random time up to the nth bound (full jitter). */
    public function pause(int $n): float
    {
        return self::backoff((float) $this->o['backoff_base'], (float) $this->o['backoff_max'], $n);
    }

    /** @internal */
    public static function backoff(float $base, float $most, int $n): float
    {
        return min($most, $base * 2 ** ($n - 1)) * mt_rand() / mt_getrandmax();
    }

    /** @internal Sleeps, also when signals come. */
    public static function sleep(float $seconds): void
    {
        for ($end = microtime(true) + $seconds; ($left = $end - microtime(true)) > 0;) {
            usleep((int) ceil(min($left, 1) * 1e6));
        }
    }

    /** @internal */
    public static function http(string $token): Http
    {
        if ($token !== '' && preg_match('/^[!-~]+$/D', $token) !== 1) {
            throw new \InvalidArgumentException('spillway: the token holds a character that no token has');
        }
        return new Http($token);
    }

    /** @internal */
    public static function key(): string
    {
        return bin2hex(random_bytes(12));
    }

    /** @internal The hook of a program that gives none: it logs each kind of failure, once a minute at most. */
    public static function warner(string $url): \Closure
    {
        $last = [];
        return static function (Failure $f) use ($url, &$last): void {
            if (microtime(true) - ($last[$f->kind] ?? 0) >= 60) {
                $last[$f->kind] = microtime(true);
                error_log("a request to $url failed: " . $f->getMessage());
            }
        };
    }

    /** @internal Calls a callback of the program, whose exceptions are its own: the first is logged. */
    public static function guest(?callable $callback): \Closure
    {
        $told = false;
        return static function (...$what) use ($callback, &$told): void {
            try {
                $callback === null || $callback(...$what);
            } catch (\Throwable $e) {
                $told || error_log('spillway: a callback threw, which is told once: ' . $e);
                $told = true;
            }
        };
    }

    /** @internal The URL of a namespace. */
    public static function endpoint(string $url, string $namespace): string
    {
        if (preg_match('/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/D', $namespace) !== 1) {
            throw new \InvalidArgumentException('spillway: bad namespace: want a letter or digit, then letters, digits, ._- up to 64');
        }
        if (preg_match('~^https?://[^/?#@\s]+(/[^?#@\s]*)?$~D', $url) !== 1) {
            throw new \InvalidArgumentException('spillway: the URL is http://host:port or https://host:port');
        }
        return rtrim($url, '/') . '/v1/' . $namespace;
    }

    /**
     * @internal
     *
     * @param array<string, mixed> $defaults
     * @param array<string, mixed> $given
     *
     * @return array<string, mixed>
     */
    public static function options(array $defaults, array $given): array
    {
        $unknown = array_diff_key($given, $defaults);
        if ($unknown !== []) {
            throw new \InvalidArgumentException('spillway: no such option: ' . implode(', ', array_keys($unknown)));
        }
        return $given + $defaults;
    }

    /** @internal */
    public static function foreign(): Failure
    {
        return new Failure('unknown', "an answer that is none of Spillway's", 200);
    }

    /** @return mixed[] */
    private static function list($said): array
    {
        if (!is_array($said)) {
            throw self::foreign();
        }
        return $said;
    }

    private static function ms(float $seconds): string
    {
        return $seconds == 0 ? '' : (int) ceil($seconds * 1000) . 'ms';
    }

    /** @param string[] $queues */
    private static function checked(array $queues): string
    {
        foreach ($queues === [] ? [''] : $queues as $queue) {
            if (preg_match('/^[A-Za-z0-9-][A-Za-z0-9._-]{0,254}$/D', $queue) !== 1) {
                throw new Failure('invalid', 'a queue is 1 to 255 letters, digits, ._- and begins with neither . nor _');
            }
        }
        return implode(',', $queues);
    }
}

/** A job of a queue. */
final class Job
{
    public string $queue;
    public string $id;
    /** Deliveries so far, with this one, and at most. */
    public int $attempt;
    public int $tries = 0;
    public string $payload = '';
    /** @var array<string, string> */
    public array $attributes = [];
    /** Of get, peek and wait: ready, prepared, delayed, leased, dead, acked; gone: it ended unkept. Else empty. */
    public string $state = '';
    /** @var mixed of get and wait: what its ack said */
    public $result = null;
    /** Of get: percent and a note, that its worker said with progress; null: it did not. */
    public ?int $progress = null;
    public string $note = '';
    /** @internal Of the lease that claim got; 0: not known. */
    public int $deadlineMs = 0;
    /** @internal That it was claimed for. */
    public float $ttr = 60;

    /** A delivery of which these are known, to settle it. */
    public function __construct(string $queue, string $id, int $attempt)
    {
        $this->queue = $queue;
        $this->id = $id;
        $this->attempt = $attempt;
    }

    /** @internal */
    public static function read($said): self
    {
        $data = base64_decode(is_string($said->data ?? '') ? $said->data ?? '' : '?', true);
        if (!is_object($said) || !is_string($said->queue ?? null) || !is_string($said->id ?? null) || $said->id === ''
            || !is_int($said->attempt ?? 0) || !is_int($said->tries ?? 0) || $data === false) {
            throw Queues::foreign();
        }
        $job = new self($said->queue, $said->id, $said->attempt ?? 0);
        $job->tries = $said->tries ?? 0;
        $job->payload = $data;
        $job->attributes = (array) ($said->attributes ?? []);
        $job->deadlineMs = is_int($said->deadline_ms ?? null) ? $said->deadline_ms : 0;
        $job->ttr = is_int($said->ttr_ms ?? null) ? $said->ttr_ms / 1000 : $job->ttr;
        $job->progress = is_int($said->progress ?? null) ? $said->progress : null;
        $job->note = is_string($said->note ?? null) ? $said->note : '';
        $job->result = $said->result ?? null;
        $job->state = is_string($said->state ?? null) ? $said->state : '';
        return $job;
    }
}

/** What became of a publish. */
final class Published
{
    /** @var string[] of the jobs, in their order */
    public array $ids;
    /** An earlier publish with the same key stored them. */
    public bool $repeated;
    /** A job with the same id exists, or one is unique; nothing was stored. */
    public bool $exists;
    /** That job was changed, as on_conflict says. */
    public bool $changed;
}

/** Why a call of Queues failed. */
final class Failure extends \RuntimeException
{
    /** Codes of the service that are a kind of their own; the others are invalid, with a status below 500. */
    public const KINDS = [
        'no_such_job' => 'no_job', 'too_many_jobs' => 'too_many_jobs', 'too_many_keys' => 'too_many_keys', 'too_many_queues' => 'too_many_queues',
        'no_such_namespace' => 'no_namespace', 'unauthorized' => 'unauthorized', 'forbidden' => 'unauthorized', 'rate_limited' => 'rate_limited',
        'empty_body' => 'empty', 'empty_batch' => 'empty', 'body_too_large' => 'too_large', 'entry_too_large' => 'too_large',
        'too_many_entries' => 'too_large', 'request_timeout' => 'unavailable', 'hung_up' => 'unknown', 'internal' => 'unknown',
        'store_unavailable' => 'unavailable', 'store_full' => 'unavailable', 'overloaded' => 'unavailable', 'shutting_down' => 'unavailable',
        'not_ready' => 'unavailable',
    ];

    /**
     * One of no_job, gone, empty, too_large, too_many_jobs, too_many_keys, too_many_queues, invalid, unauthorized, no_namespace,
     * rate_limited, unavailable (nothing was done) and unknown (the service may have done what was asked).
     */
    public string $kind;
    /** Of HTTP; 0: no answer. */
    public int $status;
    /** The service's, such as too_many_jobs; empty: it gave none. */
    public string $reason;
    /** How many seconds the service wants no request. */
    public float $retryAfter = 0;

    public function __construct(string $kind, string $message, int $status = 0, string $reason = '')
    {
        parent::__construct("spillway: $kind: $message");
        $this->kind = $kind;
        $this->status = $status;
        $this->reason = $reason;
    }

    /** @internal Of a publish that a buffer answers. */
    public static function buffer(): self
    {
        return new self('no_namespace', 'the namespace is a buffer, and took the payload as an entry; jobs are for one of kind queue', 200);
    }

    /** @internal */
    public static function of(Answer $a): self
    {
        if ($a->failed !== '') {
            return new self($a->unsent ? 'unavailable' : 'unknown', $a->failed);
        }
        $code = is_string($a->said->error ?? null) ? $a->said->error : '';
        $kind = self::KINDS[$code] ?? ($a->status === 429 ? 'rate_limited' : ($a->status < 500 ? 'invalid' : 'unknown'));
        $message = $code === '' ? "the service answered $a->status" : "$code: " . substr(is_string($a->said->message ?? null) ? $a->said->message : '', 0, 200);
        $failed = new self(($a->said->outcome ?? '') === 'unknown' ? 'unknown' : $kind, $message, $a->status, $code);
        $failed->retryAfter = $a->after;
        return $failed;
    }

    /** Whether another attempt may help. */
    public function temporary(): bool
    {
        return in_array($this->kind, ['rate_limited', 'unavailable', 'unknown'], true);
    }

    /** Whether the service rejects the token or the namespace, which may change. */
    public function barred(): bool
    {
        return $this->kind === 'unauthorized' || $this->kind === 'no_namespace';
    }
}

/** @internal What an attempt came to. */
final class Answer
{
    public int $status = 0;
    public ?\stdClass $said = null; // null: no JSON object
    public float $after = 0; // seconds to wait at least
    public string $failed = ''; // why there is no answer
    public bool $unsent = false; // because there was no connection
    public bool $over = false; // it was given up
}

/** @internal Requests, one at a time, on one connection. */
final class Http
{
    /** @var resource|\CurlHandle */
    private $curl;
    /** @var mixed[] of parents, which are theirs to end */
    private static array $others = [];
    private int $process;
    private string $token;

    public function __construct(string $token)
    {
        $this->token = $token;
        $this->curl = curl_init();
        $this->process = (int) getmypid();
    }

    /**
     * One attempt. curl repeats a request by itself where a connection that it kept was closed, unless it has read of a body that
     * it cannot rewind: so a body is one, and a request without goes on a fresh connection where it may not come twice.
     *
     * @param string[] $headers
     */
    public function send(string $method, string $url, string $body, array $headers, float $timeout, int $limit, bool $fresh, ?\Closure $stopped): Answer
    {
        $a = new Answer();
        $text = '';
        if ($this->process !== getmypid()) { // a fork, which must not speak on its parent's connection
            self::$others[] = $this->curl;
            $this->curl = curl_init();
            $this->process = (int) getmypid();
        }
        curl_reset($this->curl);
        $headers[] = 'Expect:'; // no 100 first
        if ($this->token !== '') {
            $headers[] = 'Authorization: Bearer ' . $this->token;
        }
        if ($body !== '') {
            $sent = 0;
            curl_setopt_array($this->curl, [
                CURLOPT_UPLOAD => true, CURLOPT_INFILESIZE => strlen($body),
                CURLOPT_READFUNCTION => static function ($_, $__, int $n) use ($body, &$sent): string {
                    $part = substr($body, $sent, $n);
                    $sent += strlen($part);
                    return $part;
                },
            ]);
        } elseif ($method === 'POST') {
            $headers[] = 'Content-Length: 0';
        }
        curl_setopt_array($this->curl, [
            CURLOPT_URL => $url, CURLOPT_CUSTOMREQUEST => $method, CURLOPT_HTTPHEADER => $headers,
            CURLOPT_TIMEOUT_MS => max(1, (int) ($timeout * 1000)), CURLOPT_NOSIGNAL => true, CURLOPT_FRESH_CONNECT => $fresh,
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP | CURLPROTO_HTTPS, CURLOPT_FOLLOWLOCATION => false,
            CURLOPT_WRITEFUNCTION => static function ($_, string $part) use (&$text, $limit): int {
                $text .= $part;
                return strlen($text) > $limit ? -1 : strlen($part);
            },
            CURLOPT_HEADERFUNCTION => static function ($_, string $line) use ($a): int {
                if (preg_match('/^retry-after:\s*(\d{1,9})\s*$/i', $line, $m) === 1) {
                    $a->after = (float) min((int) $m[1], 3600);
                }
                return strlen($line);
            },
            CURLOPT_NOPROGRESS => $stopped === null,
            CURLOPT_PROGRESSFUNCTION => static function () use ($stopped, $a): int {
                $a->over = $stopped !== null && $stopped();
                return $a->over ? 1 : 0;
            },
        ]);
        if (curl_exec($this->curl) === false) {
            $a->failed = curl_error($this->curl);
            $a->unsent = in_array(curl_errno($this->curl), [CURLE_COULDNT_RESOLVE_PROXY, CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_CONNECT], true);
            return $a;
        }
        $a->status = (int) curl_getinfo($this->curl, CURLINFO_RESPONSE_CODE);
        $said = json_decode($text);
        $a->said = $said instanceof \stdClass ? $said : null;
        return $a;
    }
}
