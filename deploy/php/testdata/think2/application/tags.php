<?php

$tags = [];
foreach (['worker_daemon_start', 'worker_before_process', 'queue_failed'] as $name) {
    $tags[$name] = [function () use ($name) {
        seen(['event' => $name]);
    }];
}

return $tags;
