<?php

namespace app\job;

// A job that is pushed as an object.
class Command
{
    public $acts;
    public $tries;
    public $timeout;
    public $timeoutAt;

    public function __construct(array $data)
    {
        foreach ($data as $name => $value) {
            $this->$name = $value;
        }
    }

    public function handle()
    {
        seen(['handled' => true]);
        act(null, $this->acts);
    }

    public function failed()
    {
        seen(['failed' => '']);
    }
}
