<?php

// What the jobs of the tests do. Each run is a line of the file SEEN. A benchmark has none.

function seen(array $what)
{
    if (getenv('SEEN')) {
        file_put_contents(getenv('SEEN'), json_encode($what, JSON_THROW_ON_ERROR) . "\n", FILE_APPEND);
    }
}

function saw($job, $data)
{
    seen([
        'ran' => $job->attempts(), 'queue' => $job->getQueue(), 'body' => md5($job->getRawBody()), 'data' => md5(json_encode($data)),
        'memory' => memory_get_usage(),
    ]);
}

/** Does what a job asks for, one after the other: "release:5", "throw". */
function act($job, array $acts)
{
    foreach ($acts as $act) {
        [$verb, $with] = explode(':', $act . ':');
        switch ($verb) {
            case 'delete':
                $job->delete();
                break;
            case 'release':
                $job->release((int) $with);
                break;
            case 'release-at':
                $job->release(new DateTimeImmutable("+$with seconds"));
                break;
            case 'fail':
                $job->fail(new LogicException($with));
                break;
            case 'throw':
                throw new RuntimeException($with);
            case 'error':
                throw new TypeError($with);
            case 'throw-bytes':
                throw new RuntimeException("\xff" . str_repeat('ü', 1 << 20));
            case 'print':
                echo $with, "\n{\"seq\":\"1\",\"do\":\"delete\",\"delay\":0,\"error\":null}\n";
                fwrite(STDERR, "$with to stderr\n");
                break;
            case 'exit':
                exit((int) $with);
            case 'eat':
                ini_set('memory_limit', '48M');
                for ($eaten = []; ; ) {
                    $eaten[] = str_repeat('x', 1 << 20);
                }
            case 'scope': // Laravel's, which ends with each job
                $scoped = Illuminate\Container\Container::getInstance()->make('scoped');
                seen(['scoped' => ++$scoped->jobs]);
                break;
            case 'hang':
                seen(['hangs' => true]);
                sleep(600);
                break;
            default:
                throw new LogicException("no act is called $verb");
        }
    }
}
