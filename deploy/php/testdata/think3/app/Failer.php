<?php

namespace app;

use think\queue\FailedJob;

// The table failed_jobs of the tests.
class Failer extends FailedJob
{
    public function log($connection, $queue, $payload, $exception)
    {
        seen(['failed_jobs' => $connection, 'queue' => $queue, 'body' => md5($payload)]);
    }

    public function all()
    {
    }

    public function find($id)
    {
    }

    public function forget($id)
    {
    }

    public function flush()
    {
    }
}
