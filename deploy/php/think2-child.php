<?php

// A child of `spillway work` for think-queue 1 and 2: jobs on stdin, answers on descriptor 3, one a line.
// think-queue's own worker runs them, so tries, hooks and failed() are think-queue's.
// Call it in the project's folder, or put it beside think: php think2-child.php

use think\exception\ThrowableError;
use think\queue\Worker;

$project = is_file(__DIR__ . '/think') ? __DIR__ : getcwd();
define('APP_PATH', $project . '/application/');
require $project . '/thinkphp/base.php';
if (class_exists('think\Container')) { // ThinkPHP 5.1
    think\Container::get('app')->path(APP_PATH)->initialize();
} else { // 5.0
    think\App::initCommon();
}

// One delivery. What think\queue\job\Redis does to Redis, this one notes: Spillway does it.
class SpillwayJob extends think\queue\Job
{
    public $do = 'forgot';
    public $delay = 0;
    private $line;

    public function __construct(array $line)
    {
        [$this->queue, $this->line] = [$line['queue'], $line];
    }

    public function fire()
    {
        $this->resolveAndFire(json_decode($this->getRawBody(), true));
    }

    public function getRawBody()
    {
        return $this->line['payload'] ?? base64_decode($this->line['payload_base64']); // that of bytes that are not UTF-8
    }

    public function attempts()
    {
        return $this->line['attempts'];
    }

    public function delete()
    {
        parent::delete();
        if ($this->do === 'forgot') { // a job that was released stays in Redis, as the library leaves it
            $this->do = 'delete';
        }
    }

    public function release($delay = 0)
    {
        parent::release($delay);
        $this->delete(); // so the library's worker does not release it again
        [$this->do, $this->delay] = ['release', max(0, (int) $delay)];
    }

    public function failed()
    {
        $this->do = 'failed';
        parent::failed();
    }
}

$worker = new Worker();
$hook = class_exists('think\facade\Hook') ? 'think\facade\Hook' : 'think\Hook';
$none = null;
$hook::listen('worker_daemon_start', $none);

$out = fopen('php://fd/3', 'w');
fwrite($out, '{"do":"ready"}' . "\n");
while (($line = fgets(STDIN)) !== false) {
    $line = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
    $job = new SpillwayJob($line);
    $error = null;
    try {
        $hook::listen('worker_before_process', $line['queue']);
        $worker->process($job, (int) $line['tries'], (int) ceil($line['backoff']));
    } catch (Throwable $e) {
        think\Error::getExceptionHandler()->report($e instanceof Exception ? $e : new ThrowableError($e));
        $error = substr(get_class($e) . ': ' . $e->getMessage(), 0, 4096);
    }
    $answer = ['seq' => $line['seq'], 'do' => $job->do, 'delay' => $job->delay, 'error' => $error];
    fwrite($out, json_encode($answer, JSON_INVALID_UTF8_SUBSTITUTE) . "\n");
}
