<?php

// What the file of this name in ThinkPHP 5 does: it makes the classes known. Stand-ins take the place of
// what the library came without.

$library = getenv('LIBRARY');
if (is_file("$library/thinkphp/base.php")) {
    require "$library/thinkphp/base.php";
} else {
    require "$library/autoload.php";
    spl_autoload_register('think\Loader::autoload');
    require __DIR__ . '/../standins.php';
}
require_once __DIR__ . '/../acts.php';
