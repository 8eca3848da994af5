<?php

declare(strict_types=1);

namespace Spillway;

/**
 * Reports events and forgets them. report keeps them in memory: they are sent when the request ends, after its answer where
 * PHP runs under FPM, or by flush, which a program that runs on calls now and then. What cannot be sent is tried again
 * until it is too old, the oldest entries make room, and each is counted: reported is always acked + pending + the sum of
 * dropped. Entries of a partition are stored in their order, once.
 *
 * Options, times in seconds: namespace ("default"), token (none), batch and batch_bytes (128, 256 KiB: of a request), queue and
 * queue_bytes (10,000, 32 MiB: what waits at most; one partition may have half of each), max_entry (32 KiB), max_age (180: how
 * old an entry may get here), timeout (10, of one attempt), attempts (4, that are answered 408, 429, 500 or what is not of
 * Spillway; otherwise until it is too old), backoff_base and backoff_max (0.1, 5), compress_from (1024 bytes; negative: never), end_timeout (2: how long the end of the request may take, beyond which entries are dropped;
 * negative: nothing is sent then), on_drop (told of each drop: reason, number), on_error (told of each attempt that
 * failed; default error_log, once a minute at most of each kind, and of each request under FPM).
 */
final class Reporter
{
    private const DEFAULTS = [
        'namespace' => 'default', 'token' => '', 'batch' => 128, 'batch_bytes' => 256 << 10, 'queue' => 10000, 'queue_bytes' => 32 << 20,
        'max_entry' => 32 << 10, 'max_age' => 180, 'timeout' => 10, 'attempts' => 4, 'backoff_base' => 0.1, 'backoff_max' => 5,
        'compress_from' => 1024, 'end_timeout' => 2, 'on_drop' => null, 'on_error' => null,
        'key_window' => 110, // less than the 2m for which the service remembers a key
    ];
    private const MAX_ANSWER = 1 << 20;
    private const MAX_DEPTH = 510; // the service takes 512 levels of a body, which has two of its own

    /** @var array<string, mixed> */
    private array $o;
    private string $target;
    private Http $http;
    /** @var array<int, array{string, string, int, string}> partition, payload, Unix ms, id of what waits, the oldest first */
    private array $waiting = [];
    /** @var array<string, array<int, true>> the same by partition */
    private array $parts = [];
    /** @var array<string, int> bytes of payloads, by partition; "": of all */
    private array $bytes = ['' => 0];
    /** @var Request[] which have begun, in their order */
    private array $requests = [];
    private int $reported = 0;
    private int $acked = 0;
    /** @var array<string, int> */
    private array $dropped = [];
    /** @var array<string, int> what the service was not told of yet */
    private array $untold = [];
    private bool $closed = false;
    private int $process;

    /** @param array<string, mixed> $options */
    public function __construct(string $url, array $options = [])
    {
        $this->o = $o = Queues::options(self::DEFAULTS, $options);
        if ($o['batch'] < 1 || $o['batch'] > 1000 || $o['queue'] < 2 || $o['max_entry'] < 1 || $o['batch_bytes'] < $o['max_entry']
            || $o['queue_bytes'] < 2 * $o['max_entry'] || $o['attempts'] < 1 || $o['timeout'] <= 0) {
            throw new \InvalidArgumentException('spillway: batch is 1 to 1000, queue 2 or more, attempts and timeout more than 0, '
                . 'batch_bytes an entry at least, queue_bytes two');
        }
        $this->target = Queues::endpoint($url, $o['namespace']);
        $this->o['on_error'] = Queues::guest($o['on_error'] ?? Queues::warner($this->target));
        $this->o['on_drop'] = Queues::guest($o['on_drop']);
        $this->http = Queues::http($o['token']);
        $this->process = (int) getmypid();
        if ($o['end_timeout'] >= 0) { // behind what other functions report at the end
            register_shutdown_function(function (): void {
                register_shutdown_function(function (): void { $this->end(); });
            });
        }
    }

    /**
     * Keeps an entry: JSON, or other bytes as they are, which travel alone and without id. at is its time in Unix ms, by default
     * now. False for what is not taken, which is counted.
     */
    public function report(string $partition, string $payload, ?int $at = null, string $id = ''): bool
    {
        $this->forget();
        $this->reported++;
        if ($payload === '' || preg_match('/^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/D', $partition) !== 1 || preg_match('/^[!-~]{0,64}$/D', $id) !== 1) {
            return $this->drop('invalid', 1);
        }
        if (strlen($payload) > $this->o['max_entry']) {
            return $this->drop('too_large', 1);
        }
        if ($this->closed) {
            return $this->drop('shutdown', 1);
        }
        $this->waiting[] = [$partition, $payload, $at ?? self::now(), $id];
        $this->parts[$partition][array_key_last($this->waiting)] = true;
        $this->bytes[''] += strlen($payload);
        $this->bytes[$partition] = ($this->bytes[$partition] ?? 0) + strlen($payload);
        while (count($this->parts[$partition]) > $this->o['queue'] / 2 || $this->bytes[$partition] > $this->o['queue_bytes'] / 2) {
            $this->lose((int) array_key_first($this->parts[$partition]), 'queue_overflow');
        }
        while (count($this->waiting) > $this->o['queue'] || $this->bytes[''] > $this->o['queue_bytes']) {
            $this->lose((int) array_key_first($this->waiting), 'queue_overflow');
        }
        return true;
    }

    /**
     * Counts since the reporter was made: reported, acked, pending, and dropped by reason (queue_overflow, stale, too_large,
     * retries_exhausted, shutdown, rejected, unknown, invalid).
     *
     * @return array{reported: int, acked: int, pending: int, dropped: array<string, int>}
     */
    public function stats(): array
    {
        $this->expire();
        $pending = $this->reported - $this->acked - array_sum($this->dropped);
        return ['reported' => $this->reported, 'acked' => $this->acked, 'pending' => $pending, 'dropped' => $this->dropped];
    }

    /** Sends what waits; true when all of it was settled within seconds. What was not is kept for the next flush. */
    public function flush(float $seconds): bool
    {
        $end = microtime(true) + $seconds;
        for (;;) {
            $this->expire();
            if ($this->requests === []) {
                $this->requests = $this->gather();
            }
            if ($this->requests === []) {
                return true;
            }
            $r = $this->requests[0];
            $wait = $r->next - microtime(true);
            if (microtime(true) + max($wait, 0) >= $end) {
                return false;
            }
            Queues::sleep($wait);
            array_splice($this->requests, 0, 1, $this->attempt($r, $end - microtime(true)));
        }
    }

    /** Takes no more entries, flushes, and drops what is left after seconds; true when nothing was. */
    public function close(float $seconds): bool
    {
        $this->closed = true;
        $done = $this->flush($seconds);
        foreach ($this->requests as $r) {
            $this->drop('shutdown', count($r->entries));
        }
        $this->requests = [];
        foreach (array_keys($this->waiting) as $i) {
            $this->lose($i, 'shutdown');
        }
        return $done;
    }

    /** Sends what the request has reported. Nobody waits for it but this process. */
    private function end(): void
    {
        $this->forget();
        if ($this->waiting === [] && $this->requests === []) {
            return;
        }
        if (session_status() === PHP_SESSION_ACTIVE) {
            session_write_close(); // or the next request of the user waits
        }
        if (function_exists('fastcgi_finish_request')) {
            fastcgi_finish_request();
        }
        $this->close((float) $this->o['end_timeout']);
    }

    private static function now(): int
    {
        return (int) (microtime(true) * 1000);
    }

    private function staleAt(int $at): float
    {
        return $at / 1000 + $this->o['max_age'];
    }

    /** After a fork, what waits is the parent's to send. */
    private function forget(): void
    {
        if ($this->process !== getmypid()) {
            $this->process = (int) getmypid();
            $this->waiting = $this->parts = $this->requests = $this->dropped = $this->untold = [];
            $this->bytes = ['' => 0];
            $this->reported = $this->acked = 0;
        }
    }

    private function expire(): void
    {
        $this->forget();
        while ($this->waiting !== [] && microtime(true) >= $this->staleAt($this->waiting[$i = (int) array_key_first($this->waiting)][2])) {
            $this->lose($i, 'stale');
        }
    }

    /** Takes an entry out of the queue. */
    private function take(int $i): array
    {
        $e = $this->waiting[$i];
        unset($this->waiting[$i], $this->parts[$e[0]][$i]);
        $this->bytes[''] -= strlen($e[1]);
        $this->bytes[$e[0]] -= strlen($e[1]);
        if ($this->parts[$e[0]] === []) {
            unset($this->parts[$e[0]], $this->bytes[$e[0]]);
        }
        return $e;
    }

    private function lose(int $i, string $why): void
    {
        $this->take($i);
        $this->drop($why, 1);
    }

    private function drop(string $why, int $n): bool
    {
        if ($n > 0) {
            $this->dropped[$why] = ($this->dropped[$why] ?? 0) + $n;
            if ($why !== 'rejected') {
                $told = $why === 'invalid' ? 'other' : $why;
                $this->untold[$told] = ($this->untold[$told] ?? 0) + $n;
            }
            ($this->o['on_drop'])($why, $n);
        }
        return false;
    }

    /**
     * Makes requests of the oldest entries: those that are JSON share a body, others travel alone.
     *
     * @return Request[]
     */
    private function gather(): array
    {
        $list = $requests = [];
        $size = 0;
        foreach ($this->waiting as $i => $e) {
            if (count($list) >= $this->o['batch'] || $list !== [] && $size + strlen($e[1]) > $this->o['batch_bytes']) {
                break;
            }
            if (microtime(true) >= $this->staleAt($e[2])) {
                $this->lose($i, 'stale');
                continue;
            }
            $list[] = $this->take($i);
            $size += strlen($e[1]);
        }
        $run = [];
        foreach ($list as $e) {
            json_decode($e[1], true, self::MAX_DEPTH);
            if (json_last_error() === JSON_ERROR_NONE) {
                $run[] = $e;
                continue;
            }
            array_push($requests, ...($run === [] ? [] : [$this->request($run, true)]), ...[$this->request([$e], false)]);
            $run = [];
        }
        return $run === [] ? $requests : array_merge($requests, [$this->request($run, true)]);
    }

    private function request(array $entries, bool $json): Request
    {
        $r = new Request();
        $r->entries = $entries;
        $r->json = $json;
        $r->key = Queues::key();
        $r->latest = max(array_map(function (array $e): float { return $this->staleAt($e[2]); }, $entries));
        $r->headers = ['Idempotency-Key: ' . $r->key, 'Content-Type: application/' . ($json ? 'json' : 'octet-stream')];
        $r->url = $this->target;
        if ($json) {
            $items = [];
            foreach ($entries as [$partition, $payload, $at, $id]) {
                $id = $id === '' ? '' : ',"id":' . json_encode($id, JSON_UNESCAPED_SLASHES);
                $items[] = '{"partition":"' . $partition . '","ts":' . $at . $id . ',"data":' . $payload . '}';
            }
            $r->body = '[' . implode(',', $items) . ']';
        } else {
            $r->url .= '/' . $entries[0][0];
            $r->body = $entries[0][1];
            $r->headers[] = 'X-Event-Ts: ' . $entries[0][2];
        }
        if ($this->o['compress_from'] >= 0 && strlen($r->body) >= $this->o['compress_from'] && function_exists('gzencode')) {
            $r->body = (string) gzencode($r->body);
            $r->headers[] = 'Content-Encoding: gzip';
        }
        return $r;
    }

    /**
     * Makes one attempt, and returns what is left to do. All attempts of a request have the same bytes and key, so that the
     * service, which may have stored some of the entries, stores only the others. They end when the youngest entry is stale, and
     * before the service forgets the key.
     *
     * @return Request[]
     */
    private function attempt(Request $r, float $left): array
    {
        $sent = microtime(true);
        if ($sent > $r->latest) {
            $this->drop($r->late, count($r->entries));
            return [];
        }
        $told = $this->untold;
        $this->untold = [];
        $headers = array_merge($r->headers, ['X-Sent-At: ' . self::now()]);
        if ($told !== []) {
            $headers[] = 'X-Client-Discards: ' . http_build_query($told, '', ',');
        }
        $timeout = min($this->o['timeout'], $left, $r->late === 'unknown' ? $r->latest - $sent : INF);
        $a = $this->http->send('POST', $r->url, $r->body, $headers, $timeout, self::MAX_ANSWER, false, null);
        $verdicts = $a->status === 200 ? self::verdicts($a->said, $r->n ?: $r->n = count($r->entries)) : null;
        $stored = $verdicts !== null || $a->status === 204;
        if (!$stored) {
            foreach ($told as $why => $n) {
                $this->untold[$why] = ($this->untold[$why] ?? 0) + $n;
            }
            ($this->o['on_error'])($a->status === 200 ? Queues::foreign() : Failure::of($a));
        }
        if ($stored && $this->settle($r, $verdicts ?? [])) {
            return [];
        }
        $again = $stored || $a->failed !== '' || $a->status === 200 || $a->status === 408 || $a->status === 429 || $a->status >= 500;
        if (!$again && $a->status === 413 && count($r->entries) > 1 && !$r->maybe) {
            return array_map(function (array $half) use ($r): Request {
                return $this->request($half, $r->json);
            }, array_chunk($r->entries, intdiv(count($r->entries) + 1, 2)));
        }
        if (!$again) {
            $this->drop('rejected', count($r->entries));
            return [];
        }
        $nothing = $a->unsent || $a->status === 408 || $a->status === 429
            || $a->status === 503 && isset($a->said->error) && ($a->said->outcome ?? '') !== 'unknown';
        if (!$r->maybe && ($stored || !$nothing)) {
            $r->maybe = true;
            if ($sent + $this->o['key_window'] < $r->latest) {
                $r->latest = $sent + $this->o['key_window'];
                $r->late = 'unknown';
            }
        }
        $r->next = microtime(true) + max(Queues::backoff((float) $this->o['backoff_base'], (float) $this->o['backoff_max'], ++$r->attempts), $a->after);
        $r->noes += !$stored && $a->failed === '' && ($a->status < 502 || $a->status > 504) ? 1 : 0; // while the service is away they wait
        if ($r->noes >= $this->o['attempts'] || $r->next > $r->latest) {
            $this->drop($r->noes >= $this->o['attempts'] ? 'retries_exhausted' : $r->late, count($r->entries));
            return [];
        }
        return [$r];
    }

    /**
     * Enters verdicts, and leaves in the request what is to be sent again; true when nothing is.
     *
     * @param array<int, string> $verdicts
     */
    private function settle(Request $r, array $verdicts): bool
    {
        foreach (array_keys($r->entries) as $i) {
            $verdict = $verdicts[$i] ?? '';
            if ($verdict === 'retry') {
                continue;
            }
            unset($r->entries[$i]);
            if ($verdict === 'drop') {
                $this->drop('rejected', 1);
            } else {
                $this->acked++;
            }
        }
        return $r->entries === [];
    }

    /**
     * What an answer says of entries: "retry", "drop", or that they are stored. Null: none of Spillway's.
     *
     * @return ?array<int, string>
     */
    private static function verdicts(?\stdClass $said, int $n): ?array
    {
        $accepted = $said->accepted ?? null;
        $results = $said->results ?? [];
        if (!is_int($accepted) || $accepted < 0 || $accepted > $n || !is_array($results)) {
            return null;
        }
        $verdicts = [];
        foreach ($results as $r) {
            if (!is_object($r) || !is_int($r->i ?? null) || $r->i < 0 || $r->i >= $n || !is_string($r->result ?? null)) {
                return null;
            }
            $verdicts[$r->i] = $r->result;
        }
        return $verdicts;
    }
}

/** @internal Entries on their way. */
final class Request
{
    /** @var array<int, array{string, string, int, string}> by their place in the body */
    public array $entries;
    public int $n = 0; // of the body
    public bool $json;
    public string $url;
    public string $key;
    public string $body;
    /** @var string[] */
    public array $headers;
    public int $attempts = 0;
    public int $noes = 0; // of them, answers that more may not change
    public bool $maybe = false; // some entries may be stored
    public float $next = 0; // when the next attempt may be made
    public float $latest; // when the last
    public string $late = 'stale';
}
