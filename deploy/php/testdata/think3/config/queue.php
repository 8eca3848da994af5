<?php

return [
    'default' => 'shop',
    'connections' => ['shop' => [
        'type' => 'redis', 'queue' => 'default', 'host' => '127.0.0.1', 'port' => (int) getenv('REDIS_PORT'), 'password' => '', 'select' => 0,
        'timeout' => 0, 'persistent' => false,
    ]],
    'failed' => ['type' => '\app\Failer'],
];
