<?php

error_reporting(E_ALL & ~E_DEPRECATED); // illuminate 8 is older than PHP 8.2
foreach (['Bus', 'Cache', 'Console', 'Events', 'Queue', 'Redis'] as $part) {
    require_once "Illuminate/$part/autoload.php";
}
require_once __DIR__ . '/../acts.php';
if (getenv('HORIZON')) {
    require_once __DIR__ . '/../horizon.php';
}
spl_autoload_register(function ($class) {
    $file = __DIR__ . '/../app' . strtr(substr($class, 3), '\\', '/') . '.php';
    if (strncmp($class, 'App\\', 4) === 0 && is_file($file)) {
        require $file;
    }
});
