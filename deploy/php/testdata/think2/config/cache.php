<?php

return ['type' => 'redis', 'host' => '127.0.0.1', 'port' => (int) getenv('REDIS_PORT')];
