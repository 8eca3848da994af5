<?php

// A child of `spillway work` for Laravel 5.7 and newer: jobs on stdin, answers on descriptor 3, one a line.
// Laravel's own worker runs them, so tries, back-off, middleware, failed() and failed_jobs are Laravel's.
// Call it in the project's folder, or put it beside artisan: php laravel-child.php [connection]

use Illuminate\Contracts\Console\Kernel;
use Illuminate\Contracts\Queue\Job as JobContract;
use Illuminate\Queue\Events\JobExceptionOccurred;
use Illuminate\Queue\Events\JobFailed;
use Illuminate\Queue\Events\Looping;
use Illuminate\Queue\Events\WorkerStopping;
use Illuminate\Queue\Jobs\Job;
use Illuminate\Queue\WorkerOptions;

$project = is_dir(__DIR__ . '/bootstrap') ? __DIR__ : getcwd();
require $project . '/vendor/autoload.php';
$app = require $project . '/bootstrap/app.php';
if ($app->bound(Kernel::class)) {
    $app->make(Kernel::class)->bootstrap();
}

// One delivery. What a RedisJob does to Redis, this one notes: Spillway does it.
class SpillwayJob extends Job implements JobContract
{
    public $do = 'forgot';
    public $delay = 0;
    public $error;
    private $line;

    public function __construct($app, $connection, array $line)
    {
        [$this->container, $this->connectionName, $this->queue, $this->line] = [$app, $connection, $line['queue'], $line];
    }

    public function getJobId()
    {
        return $this->payload()['id'] ?? null;
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
        if ($this->do === 'forgot') { // a job that was released stays in Redis, as RedisJob leaves it
            $this->do = $this->hasFailed() ? 'failed' : 'delete';
        }
        $this->horizon('JobDeleted', $this, $this->getRawBody());
    }

    public function release($delay = 0)
    {
        parent::release($delay);
        [$this->do, $this->delay] = ['release', max(0, $this->secondsUntil($delay))];
        $this->horizon('JobReleased', $this->getRawBody(), $this->delay);
    }

    /** Fires an event that Horizon's own queue fires when it pops, deletes or releases, where there is Horizon. */
    public function horizon($name, ...$with)
    {
        $class = "Laravel\\Horizon\\Events\\$name";
        if (class_exists($class) && $this->getJobId() !== null) {
            $event = new $class(...$with);
            $this->container['events']->dispatch($event->connection($this->connectionName)->queue($this->queue));
        }
    }
}

$connection = $argv[1] ?? $app['config']['queue.default'];
$worker = $app['queue.worker'];
$worker->setCache($app['cache']->driver());
$app['events']->listen([JobExceptionOccurred::class, JobFailed::class], function ($event) {
    if ($event->job instanceof SpillwayJob) {
        $event->job->error = $event->exception;
    }
});
$app['events']->listen(JobFailed::class, function ($event) use ($app) {
    $app['queue.failer']->log($event->connectionName, $event->job->getQueue(), $event->job->getRawBody(), $event->exception);
    if ($event->job instanceof SpillwayJob) {
        $event->job->horizon('JobFailed', $event->exception, $event->job, $event->job->getRawBody());
    }
});
// What Laravel's worker does with a job that it popped. It has no public name for that.
$run = function (SpillwayJob $job, WorkerOptions $options) {
    $this->events->until(new Looping($job->getConnectionName(), $job->getQueue()));
    if (isset($this->resetScope)) {
        ($this->resetScope)();
    }
    $this->runJob($job, $job->getConnectionName(), $options);
};

$out = fopen('php://fd/3', 'w');
fwrite($out, '{"do":"ready"}' . "\n");
while (!$worker->shouldQuit && empty($worker->lostConnection) && ($line = fgets(STDIN)) !== false) {
    $line = json_decode($line, true, 512, JSON_THROW_ON_ERROR);
    $options = new WorkerOptions();
    $options->{property_exists($options, 'backoff') ? 'backoff' : 'delay'} = (int) ceil($line['backoff']);
    $options->maxTries = (int) $line['tries'];
    $options->timeout = (int) ceil($line['timeout']);
    $job = new SpillwayJob($app, $connection, $line);
    $job->horizon('JobReserved', $job->getRawBody());
    $run->call($worker, $job, $options);
    $error = $job->error ? substr(get_class($job->error) . ': ' . $job->error->getMessage(), 0, 4096) : null;
    $answer = ['seq' => $line['seq'], 'do' => $job->do, 'delay' => $job->delay, 'error' => $error];
    fwrite($out, json_encode($answer, JSON_INVALID_UTF8_SUBSTITUTE) . "\n");
}
$app['events']->dispatch(new WorkerStopping());
