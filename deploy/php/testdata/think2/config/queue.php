<?php

return [
    'connector' => 'Redis', 'default' => 'default', 'host' => '127.0.0.1', 'port' => (int) getenv('REDIS_PORT'),
    'expire' => (int) (getenv('RETRY_AFTER') ?: 60),
];
