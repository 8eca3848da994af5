<?php

// What ThinkPHP 5.1 needs to start and a queue does not, for a library that came without the whole of it.

namespace think {
    /** Takes every call. */
    class Silent
    {
        public function __call($name, $arguments)
        {
        }

        public static function __callStatic($name, $arguments)
        {
        }
    }

    class Error
    {
        public static function getExceptionHandler()
        {
            return new exception\Handle();
        }
    }

    foreach (['Db', 'Lang', 'Log', 'Request', 'Route'] as $name) {
        class_alias(Silent::class, "think\\$name");
    }
}
