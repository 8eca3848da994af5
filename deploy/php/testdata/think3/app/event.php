<?php

$listen = [];
foreach (['JobProcessing', 'JobProcessed', 'JobExceptionOccurred', 'JobFailed', 'WorkerStopping'] as $name) {
    $listen["think\\queue\\event\\$name"] = [function () use ($name) {
        seen(['event' => $name]);
    }];
}

return ['listen' => $listen];
