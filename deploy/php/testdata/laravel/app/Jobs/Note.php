<?php

namespace App\Jobs;

// A job that is pushed by its name, as other programs push them.
class Note
{
    public function fire($job, $data)
    {
        saw($job, $data);
        act($job, $data['acts']);
    }

    public function failed($data, $e)
    {
        seen(['failed' => get_class($e)]);
    }
}
