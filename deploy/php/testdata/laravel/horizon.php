<?php

// Stand-ins for the events of Horizon, with its constructors. What is fired is seen.

namespace Laravel\Horizon\Events;

abstract class Event
{
    private $seen;

    public function __construct($payload, $more = [])
    {
        $this->seen = ['horizon' => substr(static::class, strlen(__NAMESPACE__) + 1), 'body' => md5($payload)] + $more;
    }

    public function connection($name)
    {
        $this->seen['connection'] = $name;
        return $this;
    }

    public function queue($name)
    {
        \seen($this->seen + ['queue' => $name]);
        return $this;
    }
}

class JobReserved extends Event
{
}

class JobReleased extends Event
{
    public function __construct($payload, $delay = 0)
    {
        parent::__construct($payload, ['delay' => $delay]);
    }
}

class JobDeleted extends Event
{
    public function __construct($job, $payload)
    {
        parent::__construct($payload, ['has_failed' => $job->hasFailed()]);
    }
}

class JobFailed extends Event
{
    public function __construct($exception, $job, $payload)
    {
        parent::__construct($payload, ['reported' => get_class($exception)]);
    }
}
