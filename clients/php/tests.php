<?php

// tests.php: what is particular to PHP, on the server of REDIS_URL.

declare(strict_types=1);

require __DIR__ . '/semaphore.php';

function expect(bool $met, string $what): void
{
    if (!$met) {
        fwrite(STDERR, "FAILED: $what\n");
        exit(1);
    }
}

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

// On one connection each would read what the other one asked for.
$scripts = new RedisSemaphore\Scripts(getenv('REDIS_URL') ?: 'redis://127.0.0.1');
$connection = $scripts->command('CLIENT', 'ID');
if (pcntl_fork() === 0) {
    exit($scripts->command('CLIENT', 'ID') === $connection ? 1 : 0);
}
pcntl_wait($status);
expect(pcntl_wexitstatus($status) === 0, 'a forked child uses the connection of its parent');
expect($scripts->command('CLIENT', 'ID') === $connection, 'the parent has lost its connection to a child');

// A release is done, but not answered.
final class Unanswered extends Redis
{
    public function rawCommand($command, ...$arguments): mixed
    {
        parent::rawCommand($command, ...$arguments);
        throw new RedisException('ERR no answer');
    }
}
$permit = $semaphore->acquire();
$scripts = (new ReflectionProperty($semaphore, 'scripts'))->getValue($semaphore);
$link = new ReflectionProperty($scripts, 'redis');
$to = RedisSemaphore\parseUrl(getenv('REDIS_URL') ?: 'redis://127.0.0.1');
$unanswered = new Unanswered();
$unanswered->connect($to['host'], $to['port']);
$to['auth'] === [] || $unanswered->auth($to['auth']);
$unanswered->select($to['database']);
$link->setValue($scripts, $unanswered);
try {
    $semaphore->release($permit);
    expect(false, 'a release without an answer throws nothing');
} catch (RedisSemaphore\CommandError) {
    $scripts->disconnect();
}
expect($semaphore->release($permit), 'a release that is repeated tells that the permit was lost');
expect(!$semaphore->release($permit), 'a permit that was given back is held');

function refusal(callable $make): string
{
    try {
        $make();
    } catch (InvalidArgumentException $error) {
        return $error->getMessage();
    }
    return 'it is not refused';
}

foreach (["a{b" => '"a{b" of 3 bytes', "\xff" => '"\ufffd" of 1 bytes', '' => '"" of 0 bytes'] as $name => $found) {
    $message = refusal(fn () => new RedisSemaphore\Semaphore((string) $name, 1));
    expect(str_ends_with($message, ", not $found"), $message);
}
$wrong = [
    '' => 'empty', 'secret' => 'begin with redis://', 'http://:secret@h' => 'begins with http://',
    'redis://:sec/ret@h' => '%2F', 'redis://:secret' => 'cannot be read', 'redis://u:secret@h/x' => 'database',
];
foreach ($wrong as $url => $found) {
    $message = refusal(fn () => RedisSemaphore\parseUrl((string) $url));
    expect(str_contains($message, $found) && preg_match('/secret|sec.ret/', $message) === 0, "$url: $message");
}
echo "tests.php: passed\n";
