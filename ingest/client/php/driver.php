<?php

// Drives the client for the conformance suites: a command a line, an answer a line. Its worker is a process of its own, which says
// on a pipe what its handlers do.

declare(strict_types=1);

foreach (['Queues', 'Worker', 'Reporter'] as $class) {
    require __DIR__ . "/src/$class.php";
}

set_error_handler(static function (int $level, string $text, string $file, int $line): bool {
    throw new ErrorException($text, 0, $level, $file, $line);
});

/** Options of a command, whose times are ms there and seconds here. */
function seconds(array $options): array
{
    foreach ($options as $name => $value) {
        if (in_array($name, ['max_age', 'timeout', 'backoff_base', 'backoff_max', 'key_window', 'delay', 'ttl', 'dedup', 'ttr', 'wait', 'unique', 'stop_timeout', 'give_up_after'], true)) {
            $options[$name] = $value / 1000;
        }
    }
    if (isset($options['at'])) {
        $options['at'] = DateTimeImmutable::createFromFormat('U.u', sprintf('%.3f', $options['at'] / 1000));
    }
    return array_diff_key($options, ['linger' => 0, 'break_after' => 0, 'probe_every' => 0, 'concurrency' => 0]);
}

function jobs(array $jobs): array
{
    return ['jobs' => array_map(static function (Spillway\Job $j): array {
        return ['queue' => $j->queue, 'id' => $j->id, 'state' => $j->state, 'attempt' => $j->attempt, 'tries' => $j->tries,
            'progress' => $j->progress, 'note' => $j->note, 'result' => $j->result, 'payload' => base64_encode($j->payload)];
    }, $jobs)];
}

function handle(Spillway\Job $job, Spillway\Lease $lease, array &$calls, Closure $say)
{
    $act = json_decode($job->payload, true) + ['ms' => 0, 'attempts' => 0];
    $calls[$job->id] = ($calls[$job->id] ?? 0) + 1;
    $say(['running' => 1]);
    try {
        switch ($calls[$job->id] > $act['attempts'] ? 'ok' : $act['do']) {
            case 'fail':
                throw new RuntimeException('as the payload says');
            case 'throw':
                throw new Error('as the payload says');
            case 'permanent':
                throw new Spillway\Permanent('as the payload says');
            case 'retry':
                throw new Spillway\RetryIn('as the payload says', $act['ms'] / 1000);
            case 'not_begun':
                Spillway\Queues::sleep($act['ms'] / 1000);
                throw new Spillway\NotBegun();
            case 'sleep':
                Spillway\Queues::sleep($act['ms'] / 1000);
                break;
            case 'hang':
                Spillway\Queues::sleep(1e9);
                break;
            case 'result':
                return ['done' => true];
            case 'bad_result':
                return "\xff";
            case 'big_result':
                return str_repeat('x', 5000);
        }
        return null;
    } finally {
        $say(['running' => -1, 'handled' => [['queue' => $job->queue, 'id' => $job->id, 'attempt' => $job->attempt, 'cause' => $lease->cause]]]);
    }
}

function hook(string $count, string $name, Closure $say, array $options): Closure
{
    $calls = 0;
    return static function () use ($count, $name, $say, $options, &$calls): void {
        $say([$count => 1]);
        $calls++;
        if (isset($options['throw_hooks'])) {
            throw new Error("fault $calls of $name");
        }
    };
}

/** Runs a worker in a process of its own; returns its id, and where it speaks. */
function work(Spillway\Queues $queues, array $names, array $options): array
{
    [$ours, $its] = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
    $pid = pcntl_fork();
    if ($pid > 0) {
        fclose($its);
        return [$pid, $ours];
    }
    $say = static function (array $what) use ($its): void { fwrite($its, json_encode($what) . "\n"); };
    $calls = [];
    $worker = new Spillway\Worker($queues, $names, static function (Spillway\Job $job, Spillway\Lease $lease) use (&$calls, $say) {
        return handle($job, $lease, $calls, $say);
    }, array_diff_key(seconds($options), ['no_hook' => 0, 'throw_hooks' => 0]) + [
        'on_error' => hook('errors', 'job_hook', $say, $options),
        'on_request_error' => isset($options['no_hook']) ? null : hook('request_errors', 'claim_hook', $say, $options),
    ]);
    $say(['running' => 0]); // it can be stopped
    try {
        $worker->run();
    } catch (Spillway\Failure $f) {
        $say(['error' => $f->kind]);
    }
    exit(0);
}

$reporter = $queues = $its = $pid = null;
$account = ['running' => 0, 'most' => 0, 'errors' => 0, 'request_errors' => 0, 'handled' => []];

/** Reads what the worker has said; with wait, until it has ended. */
$hear = static function (bool $wait) use (&$account, &$its): void {
    if ($its !== null) {
        stream_set_blocking($its, $wait);
    }
    while ($its !== null && ($line = fgets($its)) !== false) {
        foreach (json_decode($line, true) as $name => $what) {
            $account[$name] = is_array($what) ? array_merge($account[$name], $what) : (is_int($what) ? $account[$name] + $what : $what);
        }
        $account['most'] = max($account['most'], $account['running']);
    }
};

while (($line = fgets(STDIN)) !== false) {
    $result = json_decode($line)->result ?? null; // whose {} are no []
    $c = json_decode($line, true) + ['options' => [], 'queue' => '', 'id' => '', 'attempt' => 0, 'ms' => 0, 'error' => '', 'progress' => 0, 'note' => ''];
    $job = new Spillway\Job($c['queue'], $c['id'], $c['attempt']);
    $answer = [];
    try {
        switch ($c['op']) {
            case 'open':
                $hooks = [];
                foreach (isset($c['options']['throw_hooks']) ? ['drop', 'error'] : [] as $what) {
                    $calls[$what] = 0;
                    $hooks["on_$what"] = static function () use ($what, &$calls): void {
                        fwrite(STDERR, "{$what}_hook " . ++$calls[$what] . "\n");
                        throw new Error("fault $calls[$what] of {$what}_hook");
                    };
                }
                $reporter = new Spillway\Reporter($c['url'], $hooks + array_diff_key(seconds($c['options']), ['throw_hooks' => 0]));
                break;
            case 'report':
                $reporter->report($c['partition'], base64_decode($c['payload']), $c['at'] ?? null);
                continue 2;
            case 'flush':
            case 'close':
                $answer = ['ok' => $reporter->{$c['op']}($c['timeout'] / 1000)];
                break;
            case 'counts':
                $answer = $reporter !== null ? $reporter->stats() : $queues->counts($c['queue']);
                if (isset($answer['dropped'])) {
                    $answer['dropped'] = (object) $answer['dropped'];
                }
                break;
            case 'queues':
                $queues = new Spillway\Queues($c['url'], seconds($c['options']));
                break;
            case 'publish':
                $payloads = array_map('base64_decode', $c['payloads']);
                $answer = count($payloads) === 1 ? $queues->publish($c['queue'], $payloads[0], seconds($c['options']))
                    : $queues->publishMany($c['queue'], $payloads, seconds($c['options']));
                break;
            case 'claim':
                $answer = jobs($queues->claim($c['queues'], seconds($c['options'])));
                break;
            case 'settle':
                $arguments = ['ack' => [$result], 'requeue' => [], 'nack' => [$c['ms'] / 1000, $c['error']], 'bury' => [$c['error']], 'touch' => [$c['ms'] / 1000],
                    'progress' => [$c['progress'], $c['note'], $c['ms'] / 1000]];
                $queues->{$c['do']}($job, ...$arguments[$c['do']]);
                break;
            case 'get':
                $wait = seconds($c['options'])['wait'] ?? 0;
                $answer = jobs([$wait > 0 ? $queues->wait($c['queue'], $c['id'], $wait) : $queues->get($c['queue'], $c['id'])]);
                break;
            case 'delete':
                $queues->delete($c['queue'], $c['id']);
                break;
            case 'work':
                [$pid, $its] = work($queues, $c['queues'], $c['options']);
                fgets($its);
                break;
            case 'worked':
                $hear(false);
                $answer = array_diff_key($account, ['error' => '']);
                break;
            case 'stop':
                posix_kill($pid, SIGTERM);
                // so that it ends
            case 'wait':
                $hear(true);
                pcntl_waitpid($pid, $status);
                $its = null;
                $answer = array_intersect_key($account, ['error' => '']);
        }
    } catch (Spillway\Failure $f) {
        $answer = ['error' => $f->kind];
    }
    echo json_encode((object) (array) $answer), "\n";
}
