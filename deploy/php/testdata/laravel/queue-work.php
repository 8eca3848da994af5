<?php

// Laravel's own worker without artisan, as an application of illuminate's parts has it.

require __DIR__ . '/vendor/autoload.php';
$app = require __DIR__ . '/bootstrap/app.php';
$app['queue.worker']->daemon($app['config']['queue.default'], 'default', new Illuminate\Queue\WorkerOptions());
