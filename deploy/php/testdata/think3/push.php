<?php

// Pushes the jobs that stdin describes, one a line, as an application does.

require __DIR__ . '/vendor/autoload.php';
$app = new think\App(__DIR__);
$app->make(think\Console::class);
$queue = $app->make(think\Queue::class)->connection('shop');
while (($line = fgets(STDIN)) !== false) {
    $job = json_decode($line, true);
    $class = 'app\\job\\' . $job['class'];
    $what = $job['class'] === 'Command' ? new $class($job['data']) : $class;
    for ($n = 0; $n < $job['count']; $n++) {
        $job['delay'] ? $queue->later($job['delay'], $what, $job['data'], $job['queue']) : $queue->push($what, $job['data'], $job['queue']);
    }
}
