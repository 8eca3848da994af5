<?php

// What ThinkPHP 6 needs to start and a queue does not, for a library that came without the whole of it.

namespace think {
    class Lang
    {
        public function defaultLangSet()
        {
        }

        public function switchLangSet($set)
        {
        }
    }
}

namespace think\event {
    class AppInit
    {
    }
}

namespace think\initializer {
    class Error
    {
        public function init($app)
        {
        }
    }

    class RegisterService
    {
        public function init($app)
        {
            foreach (include $app->getRootPath() . 'vendor/services.php' as $service) {
                $app->register($service);
            }
        }
    }

    class BootService
    {
        public function init($app)
        {
            $app->boot();
        }
    }
}
