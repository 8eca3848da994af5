<?php

namespace app\job;

class Note
{
    public function fire($job, $data)
    {
        saw($job, $data);
        act($job, $data['acts']);
    }

    public function failed($data, $e = null)
    {
        seen(['failed' => $e ? get_class($e) : '']);
    }
}
