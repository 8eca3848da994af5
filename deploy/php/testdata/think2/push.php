<?php

// Pushes the jobs that stdin describes, one a line, as an application does.

require __DIR__ . '/start.php';
while (($line = fgets(STDIN)) !== false) {
    $job = json_decode($line, true);
    $class = 'app\\job\\' . $job['class'];
    $what = $job['class'] === 'Command' ? new $class($job['data']) : $class;
    for ($n = 0; $n < $job['count']; $n++) {
        $job['delay'] ? think\Queue::later($job['delay'], $what, $job['data'], $job['queue']) : think\Queue::push($what, $job['data'], $job['queue']);
    }
}
