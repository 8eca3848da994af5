<?php

return [
    'default' => 'shop',
    'connections' => ['shop' => [
        'type' => 'redis', 'queue' => 'default', 'host' => '127.0.0.1', 'port' => (int) getenv('REDIS_PORT'), 'password' => '', 'select' => 0,
        'timeout' => 0, 'persistent' => false, 'retry_after' => (int) (getenv('RETRY_AFTER') ?: 60),
        'block_for' => getenv('BLOCK_FOR') ? (int) getenv('BLOCK_FOR') : null,
    ]],
    'failed' => ['type' => '\app\Failer'],
];
