<?php

// tests.php: what is particular to PHP, on the server of REDIS_URL.

declare(strict_types=1);

require __DIR__ . '/semaphore.php';

$semaphore = new RedisSemaphore\Semaphore('test-' . bin2hex(random_bytes(16)), 1);
try {
    // It throws Lost if the child gave the permit back.
    $semaphore->hold(function () {
        if (pcntl_fork() === 0) {
            throw new DomainException('thrown in the child');
        }
        pcntl_wait($status);
    });
} catch (DomainException) {
    exit;
}
echo "tests.php: passed\n";
