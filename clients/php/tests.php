<?php

// tests.php: tests that only PHP needs, on the server of REDIS_URL.

declare(strict_types=1);

require __DIR__ . '/semaphore.php';

function expect(bool $met, string $what): void
{
    if (!$met) {
        fwrite(STDERR, "FAILED: $what\n");
        exit(1);
    }
}

function eventually(callable $met, string $what): void
{
    for ($until = RedisSemaphore\now() + 60_000; !$met(); usleep(5_000)) {
        expect(RedisSemaphore\now() < $until, $what);
    }
}

$semaphore = new RedisSemaphore\Semaphore('test-' . bin2hex(random_bytes(16)), 1);
try {
    // This throws Lost if the child releases the permit.
    $semaphore->withPermit(function () {
        if (pcntl_fork() === 0) {
            throw new DomainException('thrown in the child');
        }
        pcntl_wait($status);
    });
} catch (DomainException) {
    exit;
}

/** Starts a server at the local addresses. Returns its process and its port. */
function startServer(string ...$options): array
{
    $listening = stream_socket_server('tcp://127.0.0.1:0');
    $port = (int) substr(strrchr(stream_socket_get_name($listening, false), ':'), 1);
    fclose($listening);
    $null = ['file', '/dev/null', 'w'];
    $options = ['--port', (string) $port, '--save', '', '--bind', '127.0.0.1', '-::1', ...$options];
    $server = proc_open([getenv('REDIS_SERVER_BIN') ?: 'redis-server', ...$options], [1 => $null, 2 => $null], $pipes);
    eventually(fn () => @fsockopen('127.0.0.1', $port) !== false, 'the server does not accept connections');
    return [$server, $port];
}

// On a shared connection, each process would read the other's replies.
$to = RedisSemaphore\parseUrl(getenv('REDIS_URL') ?: 'redis://127.0.0.1');
$scripts = new RedisSemaphore\Scripts($to);
$connection = $scripts->command('CLIENT', 'ID');
if (pcntl_fork() === 0) {
    exit($scripts->command('CLIENT', 'ID') === $connection ? 1 : 0);
}
pcntl_wait($status);
expect(pcntl_wexitstatus($status) === 0, 'a forked child uses the connection of its parent');
expect($scripts->command('CLIENT', 'ID') === $connection, 'the parent lost its connection to a child');

// A release succeeds, but its reply is lost, or cut after its first byte.
final class Unanswered extends Redis
{
    public ?RedisException $error = null;

    public function rawCommand($command, ...$arguments): mixed
    {
        parent::rawCommand($command, ...$arguments);
        return $this->error === null ? null : throw $this->error;
    }
}
$scripts = (new ReflectionProperty($semaphore, 'scripts'))->getValue($semaphore);
$link = new ReflectionProperty($scripts, 'redis');
foreach ([null, new RedisException('no reply')] as $error) {
    $permit = $semaphore->acquire();
    $unanswered = new Unanswered();
    $unanswered->error = $error;
    $unanswered->connect($to['host'], $to['port']);
    $to['login']->words() === [] || $unanswered->auth($to['login']->words());
    $unanswered->select($to['database']);
    $link->setValue($scripts, $unanswered);
    expect($semaphore->release($permit), 'a repeated release reports a loss');
}
expect($permit->expiresIn() === 0, 'a released permit still expires');

// The permit is lost, and the server closes the idle connection.
$permit = $semaphore->acquire();
$other = new RedisSemaphore\Scripts($to);
$other->command('CLIENT', 'KILL', 'ID', $scripts->command('CLIENT', 'ID'));
(new ReflectionProperty($scripts, 'repliedAt'))->setValue($scripts, 0);
$other->command('DEL', "sem:{{$permit->name}}:permits");
expect(!$semaphore->release($permit), 'a lost permit counts as released because the connection was closed');

expect(!str_contains(print_r($semaphore, true), '://'), 'the output of print_r has the URL');
expect(!$semaphore->release($permit), 'a released permit is still held');
try {
    serialize($semaphore);
    expect(false, 'a serialized semaphore contains the password');
} catch (LogicException $e) {
    expect(str_contains($e->getMessage(), 'cannot be serialized'), $e->getMessage());
}

// A failure of wake does not change a successful reply, and does not delay it for long.
foreach (['NOPERM no', 'LOADING no'] as $failure) {
    $listening = stream_socket_server('tcp://127.0.0.1:0');
    $server = pcntl_fork();
    while ($server === 0) {
        $client = stream_socket_accept($listening) ?: exit;
        while (($command = (string) fread($client, 65536)) !== '') {
            fwrite($client, match (true) { // The second number, 0, means that the server has more work.
                str_contains($command, 'refused') && str_contains($command, 'declare') => "-ERR refused\r\n",
                str_contains($command, 'declare') => "*6\r\n:1\r\n:0\r\n:-1\r\n:1\r\n:7\r\n:8\r\n",
                str_contains($command, 'return') => "*3\r\n:1\r\n:0\r\n:1\r\n",
                default => "-$failure\r\n",
            });
        }
    }
    $url = 'redis://' . stream_socket_get_name($listening, false);
    $since = RedisSemaphore\now();
    $granted = new RedisSemaphore\Semaphore('granted', 1, url: $url);
    expect($granted->release($granted->acquire(300)), 'a failure of wake makes a release fail');
    unset($granted); // The server takes one connection at a time.
    try {
        (new RedisSemaphore\Semaphore('refused', 1, url: $url))->acquire(300);
        expect(false, 'a rejected request returned a permit');
    } catch (RedisSemaphore\CommandError $error) {
        expect($error->getMessage() === 'ERR refused', $error->getMessage());
    }
    expect(RedisSemaphore\now() - $since < 10_000, 'a failure of wake delays an acquire');
    posix_kill($server, SIGKILL);
    pcntl_waitpid($server, $status);
}

$permit = $semaphore->acquire();
$message = refusal(fn () => (new RedisSemaphore\Semaphore('another', 1))->release($permit));
expect(str_contains($message, 'another'), "another semaphore's permit is released: $message");
expect($semaphore->release($permit), 'an attempt through another semaphore loses the permit');

// The script ends within nested calls of withPermit(). PHP runs no "finally" then.
foreach (['exit' => fn () => exit, 'a fatal error' => fn () => trigger_error('fatal', E_USER_ERROR)] as $what => $end) {
    [$outer, $inner] = array_map(
        fn () => new RedisSemaphore\Semaphore('test-' . bin2hex(random_bytes(16)), 1), [1, 2]);
    if (pcntl_fork() === 0) {
        error_reporting(0);
        $outer->withPermit(fn () => $inner->withPermit($end));
    }
    pcntl_wait($status);
    foreach ([$outer, $inner] as $free) {
        $permit = $free->tryAcquire();
        expect($permit !== null && $free->release($permit), "$what within withPermit does not release the permit");
    }
}

// A handler ends the script during a wait, and the permit was granted just before. PHP runs no "catch" then.
$name = 'test-' . bin2hex(random_bytes(16));
$held = ($free = new RedisSemaphore\Semaphore($name, 1))->acquire();
if (($child = pcntl_fork()) === 0) {
    pcntl_async_signals(true);
    pcntl_signal(SIGTERM, fn () => exit);
    (new RedisSemaphore\Semaphore($name, 1))->withPermit(fn () => null);
    exit(1); // The signal was too late.
}
eventually(fn () => $scripts->command('ZCARD', "sem:{{$name}}:queue") === 1, 'the request of a child is not queued');
posix_kill($child, SIGSTOP);
pcntl_waitpid($child, $status, WUNTRACED);
expect($free->release($held) && $free->tryAcquire() === null, 'the permit of a child is granted to nobody');
posix_kill($child, SIGTERM);
posix_kill($child, SIGCONT);
pcntl_waitpid($child, $status);
expect(pcntl_wexitstatus($status) === 0, 'the child does not end by its signal');
$permit = $free->tryAcquire();
expect($permit !== null && $free->release($permit), 'exit during a wait does not release the permit');

// One of the releases fails at the end of the script. The server rejects it, because a key has another type.
foreach (['outer' => [0, 1], 'inner' => [1, 0]] as $what => [$failing, $other]) {
    $names = array_map(fn () => 'test-' . bin2hex(random_bytes(16)), [1, 2]);
    [$outer, $inner] = array_map(fn ($name) => new RedisSemaphore\Semaphore($name, 1), $names);
    if (pcntl_fork() === 0) {
        error_reporting(0);
        $outer->withPermit(fn () => $inner->withPermit(function () use ($scripts, $names, $failing) {
            $scripts->command('SET', "sem:{{$names[$failing]}}:permits", 'a text');
            exit;
        }));
    }
    pcntl_wait($status);
    expect(pcntl_wexitstatus($status) === 255, "a failure to release the $what permit is not reported");
    $free = [$outer, $inner][$other];
    $permit = $free->tryAcquire();
    expect($permit !== null && $free->release($permit), "a failure to release the $what permit keeps the other permit");
    $scripts->command('DEL', "sem:{{$names[$failing]}}:permits");
}

// A changed limit is logged, and does not end an acquire of a program that turns warnings into exceptions.
set_error_handler(fn ($level, $text) => throw new ErrorException($text));
$log = tempnam(sys_get_temp_dir(), 'log');
$before = ini_set('error_log', $log);
$name = 'test-' . bin2hex(random_bytes(16));
foreach ([2, 3] as $limit) {
    (new RedisSemaphore\Semaphore($name, $limit))->withPermit(fn () => null);
}
ini_set('error_log', (string) $before);
restore_error_handler();
expect(str_contains(file_get_contents($log), 'the limit 3 replaces the declared limit 2'), 'a changed limit is not logged');
unlink($log);

function refusal(callable $make): string
{
    try {
        $make();
    } catch (InvalidArgumentException $error) {
        return $error->getMessage();
    }
    return 'it is not rejected';
}

foreach (["a{b" => '"a{b" of 3 bytes', "\xff" => '"\ufffd" of 1 bytes', '' => '"" of 0 bytes'] as $name => $found) {
    $message = refusal(fn () => new RedisSemaphore\Semaphore((string) $name, 1));
    expect(str_ends_with($message, ", not $found"), $message);
}
$wrong = [
    '' => 'empty', 'secret' => 'begin with redis://', 'http://:secret@h' => 'begin with redis://', 'secret://h' => 'begin with redis://',
    'REDIS://:secret@h' => 'begin with redis://', 'redis:/:secret@h' => 'begin with redis://', 'redis:u:secret@h' => 'begin with redis://',
    'unix://:secret@/path' => 'begin with redis://',
    'redis://:sec ret@h' => 'white space', "redis://:secret@h\n" => 'white space', "redis://:secret@h\0" => 'white space',
    'redis://:sec/ret@h' => '%2F', 'redis://:sec?ret@h' => '%3F', 'redis://:sec#ret@h' => '%23',
    'redis://secret@h' => 'without a password', 'redis://secret:@h' => 'without a password',
    'redis://:secret' => 'host', 'redis://:secret@' => 'host', 'redis://:secret@::1' => 'host', 'redis://:secret@[::1' => 'host',
    'redis://:secret@a:1,b:2' => 'host', 'redis://:secret@a,b' => 'host',
    'redis://:secret@h:x' => 'port', 'redis://:secret@h:0' => 'port', 'redis://:secret@h:65536' => 'port', 'redis://:secret@h:+1' => 'port',
    'redis://u:secret@h/x' => 'database', 'redis://u:secret@h//1' => 'database', 'redis://h/-1' => 'database',
    'redis://h?db=5' => '?', 'redis://h/1?password=secret' => '?', 'redis://h?' => '?', 'redis://h/#secret' => '#',
];
foreach ($wrong as $url => $found) {
    $message = refusal(fn () => new RedisSemaphore\Semaphore('wrong', 1, url: (string) $url));
    expect(preg_match('~^the URL (.*)\. It must be redis://~', $message, $parts) === 1 && str_contains($parts[1], $found),
        "$url: $message");
    expect(preg_match('/secret|sec.ret/', $message) === 0, "$url: $message");
}
$long = str_repeat('A b/9', 20_000);
RedisSemaphore\parseUrl('redis://:' . rawurlencode($long) . '@h');
expect(!str_contains(RedisSemaphore\Texts::shown("ERR $long"), 'b/9'), 'a long password is shown');

$right = [
    'redis://h' => ['h', 6379, false, [], 0], 'rediss://u:a+b%20%C3@h:65535/' => ['h', 65535, true, ['u', "a+b \xc3"], 0],
    'redis://:p:q@[::1]:1/15' => ['::1', 1, false, ['p:q'], 15], 'redis://:@h:/' => ['h', 6379, false, [], 0],
];
foreach ($right as $url => $parts) {
    $read = RedisSemaphore\parseUrl($url);
    $read['login'] = $read['login']->words();
    expect(array_values($read) === $parts, "$url is misread");
}
$given = getenv('REDIS_URL');
putenv('REDIS_URL=');
$message = refusal(fn () => new RedisSemaphore\Semaphore('wrong', 1));
expect(str_contains($message, 'empty'), "an empty REDIS_URL: $message");
putenv($given === false ? 'REDIS_URL' : "REDIS_URL=$given");

// Groups: a cap, wrong groups, and grant messages.
$name = 'test-' . bin2hex(random_bytes(16));
[$plain, $capped, $larger, $other] = array_map(
    fn ($group) => new RedisSemaphore\Semaphore($name, 3, group: $group), [null, 'a,1,1', 'a,2,2', 'b']);
$permit = $plain->acquire();
$held = $capped->acquire();
expect(str_contains($held->id, ':a,1,1:'), $held->id);
expect($capped->tryAcquire() === null, 'a cap has no effect');
$second = $other->tryAcquire();
expect(str_contains($second->id, ':b,1,0:') && $plain->release($permit), "$second->id or a permit without a group is lost");
$third = $larger->tryAcquire();
expect($third !== null && $larger->release($third), 'a larger cap has no effect');
$reader = new RedisSemaphore\Scripts($to);
if (pcntl_fork() === 0) {
    $granted = (new RedisSemaphore\Semaphore($name, 3, group: 'a,1,1'))->acquire();
    exit($capped->release($granted) ? 0 : 1);
}
eventually(fn () => $reader->command('ZCARD', "sem:{{$name}}:queue") === 1, 'the request of a child is not queued');
expect($capped->release($held) && $other->release($second), 'a permit of a group is lost');
pcntl_wait($status);
expect(pcntl_wexitstatus($status) === 0, 'a request at the cap of its group is not granted');
$grant = new ReflectionMethod($capped, 'grant');
expect($grant->invoke($capped, "$name\n$held->id 7 8", $held->id) === [7, 8], 'a message with a group is ignored');
foreach (['', "\xff", 'a:b', "a\n", str_repeat('x', 65), 'a,1', 'a,0,0', 'a,1001,0', 'a,01,0', 'a,1,4294967296', 'a,1,0:b'] as $group) {
    $message = refusal(fn () => new RedisSemaphore\Semaphore($name, 1, group: $group));
    expect(str_starts_with($message, 'a group must be NAME or NAME,SHARE,CAP'), "$group: $message");
}

// A request also waits at an IPv6 address, if this machine has one.
[$server, $port] = startServer();
if (@fsockopen('tcp://[::1]', $port) !== false) {
    $url = "redis://[::1]:$port";
    $held = ($free = new RedisSemaphore\Semaphore('v6', 1, url: $url))->acquire();
    if (pcntl_fork() === 0) {
        $granted = ($waiting = new RedisSemaphore\Semaphore('v6', 1, url: $url))->acquire();
        exit($waiting->release($granted) ? 0 : 1);
    }
    $reader = new RedisSemaphore\Scripts(RedisSemaphore\parseUrl($url));
    eventually(fn () => $reader->command('ZCARD', 'sem:{v6}:queue') === 1, 'a request at an IPv6 address is not queued');
    expect($free->release($held), 'a permit at an IPv6 address is lost');
    pcntl_wait($status);
    expect(pcntl_wexitstatus($status) === 0, 'a request at an IPv6 address is not granted');
}
proc_terminate($server, SIGKILL);

// The extension ends some texts with a NUL character or a line feed.
$listening = stream_socket_server('tcp://127.0.0.1:0');
$server = pcntl_fork();
while ($server === 0) {
    $client = stream_socket_accept($listening) ?: exit;
    fwrite($client, str_contains((string) fread($client, 65536), 'SELECT') ? "-ERR refused\r\n" : "HTTP/1.1 400 Bad\r\n");
}
$address = stream_socket_get_name($listening, false);
foreach (['/1' => '/^ERR refused$/D', '' => '/^protocol error.*byte$/D'] as $database => $pattern) {
    try {
        (new RedisSemaphore\Scripts(RedisSemaphore\parseUrl("redis://$address$database")))->command('PING');
        expect(false, 'an error reply is not an error');
    } catch (RedisSemaphore\CommandError | RedisSemaphore\ConnectionError $error) {
        expect(preg_match($pattern, $error->getMessage()) === 1, json_encode($error->getMessage()));
    }
}
posix_kill($server, SIGKILL);
pcntl_waitpid($server, $status);

// A server that does not know AUTH quotes the arguments of AUTH in its error. A stack trace may contain arguments, too.
ini_set('zend.exception_ignore_args', '0'); // the defaults without a php.ini
ini_set('zend.exception_string_param_max_len', '15');
[$server, $port] = startServer('--rename-command', 'AUTH', '');
foreach (['b:s3cret', ':s3cret'] as $credentials) {
    [$url, $nowhere] = ["redis://$credentials@127.0.0.1:$port", "redis://$credentials@127.0.0.1:1"];
    $semaphore = new RedisSemaphore\Semaphore('waiting', 1, url: $url);
    $refused = new RedisSemaphore\Semaphore('waiting', 1, url: $nowhere);
    $dumps = print_r($semaphore, true) . var_export($semaphore, true) . var_export($refused, true);
    expect(!str_contains($dumps, 's3c'), "the password is in $dumps");
    $calls = [
        fn () => $semaphore->acquire(),
        fn () => new RedisSemaphore\Listener(RedisSemaphore\parseUrl($url), 'channel'),
        fn () => (new RedisSemaphore\Semaphore('waiting', 1, url: "$url/x"))->acquire(),
        fn () => $refused->acquire(100),
        fn () => new RedisSemaphore\Listener(RedisSemaphore\parseUrl($nowhere), 'channel'),
    ];
    foreach ($calls as $number => $call) {
        try {
            $call();
            expect(false, 'a server without AUTH is not rejected');
        } catch (RuntimeException | InvalidArgumentException $error) {
            expect($number > 1 || preg_match('/unknown command .AUTH.$/', $error->getMessage()), $error->getMessage());
            // print_r shows the arguments in a stack trace, and the variables of closures among them.
            foreach ([(string) $error, print_r($error, true)] as $shown) {
                expect(!str_contains($shown, 's3c'), "the password is in $shown");
            }
        }
    }
}
proc_terminate($server, SIGKILL);
echo "tests.php: passed\n";
