<?php

// One job by think-queue's own worker, as its command queue:work starts it: once.php QUEUE

require __DIR__ . '/start.php';
try {
    (new think\queue\Worker())->pop($argv[1], 3, 0, 0);
} catch (Throwable $e) {
    fwrite(STDERR, get_class($e) . "\n");
}
