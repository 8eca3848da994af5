<?php

define('APP_PATH', __DIR__ . '/application/');
require __DIR__ . '/thinkphp/base.php';
think\Container::get('app')->path(APP_PATH)->initialize();
