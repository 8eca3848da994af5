<?php

namespace app\job;

// Nothing but the queue's own work, for measuring.
class Quiet
{
    public function fire($job, $data)
    {
        $job->delete();
    }
}
