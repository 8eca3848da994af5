<?php

// A child of `spillway work` for think-queue 3: jobs on stdin, answers on descriptor 3, one a line.
// think-queue's own worker runs them, so tries, events, failed() and failed_jobs are think-queue's.
// Call it in the project's folder, or put it beside think: php think3-child.php [connection]

use think\queue\event\JobFailed;
use think\queue\event\WorkerStopping;

$project = is_file(__DIR__ . '/think') ? __DIR__ : getcwd();
require $project . '/vendor/autoload.php';
$app = new think\App($project);
$app->make(think\Console::class); // starts the application as the file think does

// One delivery. What think\queue\job\Redis does to Redis, this one notes: Spillway does it.
class SpillwayJob extends think\queue\Job
{
    use think\queue\InteractsWithTime;

    public $do = 'forgot';
    public $delay = 0;
    private $line;

    public function __construct($app, $connection, array $line)
    {
        [$this->app, $this->connection, $this->queue, $this->line] = [$app, $connection, $line['queue'], $line];
    }

    public function getJobId()
    {
        return $this->payload('id');
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
            $this->do = $this->hasFailed() ? 'failed' : 'delete';
        }
    }

    public function release($delay = 0)
    {
        parent::release($delay);
        [$this->do, $this->delay] = ['release', max(0, $this->secondsUntil($delay))];
    }
}

$connection = $argv[1] ?? $app->config->get('queue.default');
$worker = $app->make(think\queue\Worker::class);
$handle = $app->make(think\exception\Handle::class);
$app->event->listen(JobFailed::class, function (JobFailed $event) use ($app) {
    $app['queue.failer']->log($event->connection, $event->job->getQueue(), $event->job->getRawBody(), $event->exception);
});

$out = fopen('php://fd/3', 'w');
fwrite($out, '{"do":"ready"}' . "\n");
while (($line = fgets(STDIN)) !== false) {
    $line = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
    $job = new SpillwayJob($app, $connection, $line);
    $error = null;
    try {
        $worker->process($connection, $job, (int) $line['tries'], (int) ceil($line['backoff']));
    } catch (Throwable $e) {
        $handle->report($e);
        $error = substr(get_class($e) . ': ' . $e->getMessage(), 0, 4096);
    }
    $answer = ['seq' => $line['seq'], 'do' => $job->do, 'delay' => $job->delay, 'error' => $error];
    fwrite($out, json_encode($answer, JSON_INVALID_UTF8_SUBSTITUTE) . "\n");
}
$app->event->trigger(new WorkerStopping(0));
