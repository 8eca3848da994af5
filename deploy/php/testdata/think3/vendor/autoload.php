<?php

// think-queue as .ci/deps php laid it down, the application's own classes, and stand-ins for what the library came without.

$library = getenv('LIBRARY');
require is_file("$library/vendor/autoload.php") ? "$library/vendor/autoload.php" : "$library/autoload.php";
require_once __DIR__ . '/../acts.php';
spl_autoload_register(function ($class) {
    $file = __DIR__ . '/../' . strtr($class, '\\', '/') . '.php';
    if (strncmp($class, 'app\\', 4) === 0 && is_file($file)) {
        require $file;
    } elseif (preg_match('/^think\\\\(Lang|event\\\\AppInit|initializer\\\\\w+)$/', $class)) {
        require_once __DIR__ . '/../standins.php';
    }
});
