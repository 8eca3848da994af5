<?php

namespace App\Jobs;

use Illuminate\Bus\Queueable;
use Illuminate\Contracts\Queue\ShouldQueue;
use Illuminate\Queue\InteractsWithQueue;

// A job that is pushed as an object, which Laravel deletes when it has run.
class Command implements ShouldQueue
{
    use InteractsWithQueue;
    use Queueable;

    public $acts;
    public $text;
    public $tries;
    public $timeout;
    public $backoff;
    public $retryUntil;
    public $maxExceptions;
    public $held = false; // whether a middleware sends it back

    public function __construct(array $data)
    {
        foreach ($data as $name => $value) {
            $this->$name = $value;
        }
    }

    public function middleware()
    {
        return [function ($job, $next) {
            return $this->held ? $job->release(7) : $next($job);
        }];
    }

    public function handle()
    {
        saw($this->job, $this->text);
        act($this, $this->acts);
    }

    public function failed($e)
    {
        seen(['failed' => get_class($e)]);
    }
}
