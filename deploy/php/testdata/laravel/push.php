<?php

// Pushes the jobs that stdin describes, one a line, as an application does.

require __DIR__ . '/vendor/autoload.php';
$app = require __DIR__ . '/bootstrap/app.php';
$queue = $app['queue']->connection('shop');
while (($line = fgets(STDIN)) !== false) {
    $job = json_decode($line, true);
    $class = 'App\\Jobs\\' . $job['class'];
    $what = $job['class'] === 'Command' ? new $class($job['data']) : $class . '@fire';
    for ($n = 0; $n < $job['count']; $n++) {
        $job['delay'] ? $queue->later($job['delay'], $what, $job['data'], $job['queue']) : $queue->push($what, $job['data'], $job['queue']);
    }
}
