<?php

// vectors.php [FILE...]: runs these files, or all files of lua/vectors, on the server of REDIS_URL.

declare(strict_types=1);

require __DIR__ . '/semaphore.php';

use RedisSemaphore\CommandError;
use RedisSemaphore\Listener;
use RedisSemaphore\Scripts;

use function RedisSemaphore\parseUrl;

const KEYS = ['permits', 'queue', 'clients', 'state', 'order', 'turns'];
define('URL', getenv('REDIS_URL') ?: 'redis://127.0.0.1');

final class Mismatch extends RuntimeException
{
}

final class TestCase
{
    private array $variables;
    private ?Listener $listener = null;

    public function __construct(private readonly Scripts $scripts, string $name)
    {
        $this->variables = ['name' => $name, 'channel' => "sem:wake:$name", 'sharded' => "sem:{{$name}}:wake:$name"];
        foreach (KEYS as $key) {
            $this->variables[$key] = "sem:{{$name}}:$key";
        }
    }

    public function run(stdClass $step): void
    {
        $this->{array_key_first((array) $step) . 'Step'}($step);
    }

    private function callStep(stdClass $step): void
    {
        $keys = array_map(fn ($key) => $this->variables[$key], $step->with_keys ?? array_slice(KEYS, 0, 4));
        try {
            $reply = $this->scripts->call($step->call, $keys, $this->words($step->args));
        } catch (CommandError $error) {
            if (!isset($step->error) || !str_starts_with($error->getMessage(), $step->error)) {
                throw new Mismatch($error->getMessage());
            }
            return;
        }
        if (isset($step->error)) {
            throw new Mismatch('a reply instead of an error: ' . json_encode($reply));
        }
        $this->expect($step->reply, $reply);
    }

    private function commandStep(stdClass $step): void
    {
        $reply = $this->scripts->command(...$this->words($step->command));
        if (isset($step->reply)) {
            $this->expect($step->reply, $reply);
        }
    }

    private function keysStep(stdClass $step): void
    {
        foreach ($step->keys as $key => $expected) {
            $name = $this->variables[$key];
            $list = $key === 'state'
                ? $this->scripts->command('HGETALL', $name)
                : $this->scripts->command('ZRANGE', $name, 0, -1, 'WITHSCORES');
            $found = array_column(array_chunk($list, 2), 1, 0);
            $expected = (array) $expected;
            if (array_diff_key($expected, $found) !== [] || array_diff_key($found, $expected) !== []) {
                throw new Mismatch("$key has " . json_encode($found));
            }
            foreach ($expected as $member => $value) {
                $this->expect($value, $found[$member]);
            }
        }
    }

    private function expiresStep(stdClass $step): void
    {
        foreach ($step->expires as $key => $expected) {
            $this->expect($expected, $this->scripts->command('PTTL', $this->variables[$key]));
        }
    }

    private function untilStep(stdClass $step): void
    {
        while (true) {
            [$seconds, $microseconds] = $this->scripts->command('TIME');
            $left = $this->variables[$step->until] - (int) $seconds * 1000 - intdiv((int) $microseconds, 1000);
            if ($left <= 0) {
                return;
            }
            usleep($left * 1000);
        }
    }

    private function listenStep(stdClass $step): void
    {
        $subscribe = ($step->sharded ?? false) ? 'SSUBSCRIBE' : 'SUBSCRIBE';
        $this->listener = new Listener(parseUrl(URL), $this->variables[$step->listen], $subscribe);
    }

    private function messageStep(stdClass $step): void
    {
        $message = $this->listener->next(RedisSemaphore\now() + 5000) ?? throw new Mismatch('no message arrived');
        $this->expect($step->message, array_map(fn ($line) => explode(' ', $line), explode("\n", $message)));
    }

    private function words(array $words): array
    {
        return array_map(fn ($word) => is_string($word) ? $word : $this->value($word), $words);
    }

    private function value(stdClass $expression): string|int
    {
        $value = $this->variables[$expression->is];
        return isset($expression->plus) ? $value + $expression->plus : $value;
    }

    private function expect(mixed $expected, mixed $found): void
    {
        if (is_array($expected)) {
            $this->check(is_array($found) && count($found) === count($expected), $expected, $found);
            foreach ($expected as $index => $part) {
                $this->expect($part, $found[$index]);
            }
            return;
        }
        if ($expected instanceof stdClass && isset($expected->is) && is_string($this->variables[$expected->is])) {
            $expected = $this->variables[$expected->is];
        }
        if (is_string($expected)) {
            $this->check($found === $expected, $expected, $found);
            return;
        }
        $number = filter_var($found, FILTER_VALIDATE_INT);
        $this->check($number !== false, $expected, $found);
        if (is_int($expected)) {
            $this->check($number === $expected, $expected, $found);
            return;
        }
        $this->check(!isset($expected->is) || $number === $this->value($expected), $expected, $found);
        $this->check(!isset($expected->above) || $number > $this->variables[$expected->above], $expected, $found);
        $this->check(!isset($expected->from) || $number >= $expected->from, $expected, $found);
        $this->check(!isset($expected->to) || $number <= $expected->to, $expected, $found);
        if (isset($expected->save)) {
            $this->variables[$expected->save] = $number;
        }
    }

    private function check(bool $matches, mixed $expected, mixed $found): void
    {
        if (!$matches) {
            throw new Mismatch('found ' . json_encode($found) . ', expected ' . json_encode($expected)
                . ' of ' . json_encode($this->variables));
        }
    }
}

$scripts = new Scripts(parseUrl(URL));
preg_match('/redis_version:([0-9.]+)/', $scripts->command('INFO', 'server'), $version);
[$passed, $failed] = [0, 0];
foreach (array_slice($argv, 1) ?: glob(__DIR__ . '/../../lua/vectors/*.json') as $file) {
    foreach (json_decode(file_get_contents($file), flags: JSON_THROW_ON_ERROR)->cases as $case) {
        if (version_compare($version[1], $case->needs ?? '0', '<')) {
            continue;
        }
        $name = 'vector-' . bin2hex(random_bytes(16));
        $running = new TestCase($scripts, $name);
        $steps = json_decode(str_replace('@', $name, json_encode($case->steps)));
        try {
            foreach ($steps as $index => $step) {
                $running->run($step);
            }
            $passed++;
        } catch (RuntimeException $problem) {
            $failed++;
            fprintf(STDERR, "%s: %s: step %d %s: %s\n", basename($file), $case->name, $index + 1,
                json_encode($step), $problem->getMessage());
        }
        $scripts->command('DEL', ...array_map(fn ($key) => "sem:{{$name}}:$key", KEYS));
    }
}
// If a client changed the text of a script, it would send the whole text with each call.
$manifest = json_decode(file_get_contents(__DIR__ . '/../../lua/manifest.json'), flags: JSON_THROW_ON_ERROR);
$known = $scripts->command('SCRIPT', 'EXISTS', ...array_column($manifest->scripts, 'sha1'));
if (in_array(0, $known)) {
    $failed++;
    fwrite(STDERR, "the server does not know all scripts of the manifest\n");
}
echo "$passed cases passed, $failed failed\n";
exit($failed === 0 && $passed > 0 ? 0 : 1);
