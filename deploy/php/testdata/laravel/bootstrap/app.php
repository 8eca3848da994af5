<?php

// Laravel's queue from its parts, as Debian packages them, without the framework around it.

use Illuminate\Bus\Dispatcher as Bus;
use Illuminate\Cache\CacheManager;
use Illuminate\Container\Container;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Events\Dispatcher;
use Illuminate\Queue\QueueServiceProvider;
use Illuminate\Redis\RedisManager;
use Illuminate\Support\Facades\Facade;

$app = new class extends Container {
    public function isDownForMaintenance()
    {
        return false;
    }
};
Container::setInstance($app);
Facade::setFacadeApplication($app);
$app->instance(Illuminate\Contracts\Container\Container::class, $app);
$app->instance('config', new App\Config([
    'queue.default' => 'shop',
    'queue.connections.shop' => [
        'driver' => 'redis', 'connection' => 'default', 'queue' => 'default', 'retry_after' => (int) (getenv('RETRY_AFTER') ?: 90),
        'block_for' => getenv('BLOCK_FOR') ? (int) getenv('BLOCK_FOR') : null,
    ],
    'cache.default' => 'redis',
    'cache.prefix' => 'laravel_cache',
    'cache.stores.redis' => ['driver' => 'redis', 'connection' => 'default'],
]));

$app->instance('events', $events = new Dispatcher($app));
$app->instance(Illuminate\Contracts\Events\Dispatcher::class, $events);
$app->instance('redis', new RedisManager($app, 'phpredis', [
    'options' => ['prefix' => 'laravel_database_'],
    'default' => ['host' => '127.0.0.1', 'port' => (int) getenv('REDIS_PORT'), 'database' => 0],
]));
$app->instance('cache', new CacheManager($app));
$app->instance(Illuminate\Contracts\Bus\Dispatcher::class, $bus = new Bus($app));
$app->instance(Bus::class, $bus);
$app->instance('log', new class {
    public function driver()
    {
        return $this;
    }
});
$app->instance(ExceptionHandler::class, new App\Handler());
(new QueueServiceProvider($app))->register();
$app->instance('queue.failer', new App\Failer());

foreach (['Looping', 'JobProcessing', 'JobProcessed', 'JobExceptionOccurred', 'JobFailed', 'WorkerStopping'] as $name) {
    $events->listen("Illuminate\\Queue\\Events\\$name", function () use ($name) {
        seen(['event' => $name]);
    });
}
$app->scoped('scoped', function () {
    return (object) ['jobs' => 0];
});

return $app;
