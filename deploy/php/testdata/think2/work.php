<?php

// think-queue's own worker, as its command queue:work starts it for good: work.php QUEUE

require __DIR__ . '/start.php';
$work = new class extends think\queue\command\Work {
    public function work($queue)
    {
        $this->worker = new think\queue\Worker();
        $this->output = new think\console\Output('nothing');
        $this->daemon($queue, 0, 128, 0);
    }
};
$work->work($argv[1]);
