<?php

// A thin client of redis-semaphore. README.md tells how to use it.

declare(strict_types=1);

namespace RedisSemaphore;

require_once __DIR__ . '/connections.php';
require_once __DIR__ . '/signals.php';

/** No permit came in time. */
final class Timeout extends \RuntimeException
{
}

/** The permit was lost before the work of hold() had ended. */
final class Lost extends \RuntimeException
{
}

/** The server did not answer, or the connection was cut. */
final class ConnectionError extends \RuntimeException
{
}

/** What the server answered is an error. */
final class CommandError extends \RuntimeException
{
    public function mayPass(): bool
    {
        // Redis 6.2 puts a text in front of errors that commands in a script meet.
        $passes = '/^(ERR Error running script .*: -)?(LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|READONLY) /';
        return preg_match($passes, $this->getMessage()) === 1;
    }
}

/** The time in ms of a clock that nobody sets back or forth. */
function now(): int
{
    return intdiv(hrtime(true), 1_000_000);
}

final class Permit
{
    public function __construct(
        public readonly string $id,
        public readonly int $token,
        private readonly int $end,
    ) {
    }

    /** For how many ms it is held for sure. 0: it may be lost. */
    public function left(): int
    {
        return max($this->end - now(), 0);
    }
}

final class Answer
{
    public function __construct(
        public readonly array $reply,
        public readonly int $sent,
        public readonly bool $repeated,
    ) {
    }
}

final class Semaphore
{
    private const LIVENESS = 15_000; // ms: the server passes over a waiter that was silent for so long
    private const ASK_EVERY = 5_000; // a third of it
    private const PATIENCE = 30_000; // ms: how long a call is repeated while Redis is away
    private const GIVE_BACK = 2_000; // ms: and how long giving back what did not become a permit

    private readonly string $url;
    private readonly Scripts $scripts;
    private readonly array $keys;
    private bool $declared = false;

    public function __construct(
        private readonly string $name,
        private readonly int $limit,
        private readonly int $lease = 30_000,
        ?string $url = null,
    ) {
        if (preg_match('/\A[^{}\x00-\x1f\x7f]+\z/u', $name) !== 1 || strlen($name) > 512) {
            throw new \InvalidArgumentException(
                'a name has 1 to 512 bytes of UTF-8, no { and }, and no control characters');
        }
        self::check('a limit', $limit, 0, 4_294_967_295);
        self::check('a lease', $lease, 1, 604_800_000);
        $this->url = $url ?? (getenv('REDIS_URL') ?: 'redis://127.0.0.1');
        $this->scripts = new Scripts($this->url);
        $this->keys = array_map(fn ($key) => "sem:{{$name}}:$key", ['permits', 'queue', 'waiting', 'state']);
    }

    /** A permit, or null when there is no room, or somebody else waits. */
    public function try(): ?Permit
    {
        return $this->acquireBy(null, fn ($id) => $this->ask($id, 'none', 'poll', 'try', null));
    }

    /** Waits for a permit, for so many ms if that is given. */
    public function acquire(?int $timeout = null): Permit
    {
        self::check('a timeout', $timeout ?? 0, 0, 2 ** 53 - 1);
        $until = $timeout === null ? null : now() + $timeout;
        // Most of the time nobody waits. Then there is no need to listen.
        return $this->acquireBy($until, fn ($id) => $this->ask($id, 'none', 'poll', 'try', $until)
            ?? $this->wait($id, $until));
    }

    /** Whether the permit was held until now. */
    public function release(Permit $permit): bool
    {
        return Signals::defer(
            fn () => $this->giveBack($permit->id, $permit->left(), min($permit->left(), self::PATIENCE)));
    }

    /** Calls $work with a permit, and gives it back. Throws Lost at the end if it was lost before. */
    public function hold(callable $work, ?int $timeout = null): mixed
    {
        // No signal comes between the permit and the block that gives it back.
        return Signals::defer(function () use ($work, $timeout) {
            $permit = $this->acquire($timeout);
            try {
                $result = Signals::allow(fn () => $work($permit));
            } finally {
                $held = $this->release($permit);
            }
            return $held ? $result : throw new Lost("the permit $permit->id of $this->name was lost");
        });
    }

    private static function check(string $what, int $number, int $from, int $to): void
    {
        if ($number < $from || $number > $to) {
            throw new \InvalidArgumentException("$what is a number from $from to $to, not $number");
        }
    }

    private function acquireBy(?int $until, callable $how): ?Permit
    {
        $this->declareLimit($until);
        $id = gethostname() . ':' . getmypid() . ':' . bin2hex(random_bytes(16));
        try {
            return Signals::defer(fn () => $how($id), dispatches: true);
        } catch (\Throwable $error) { // An error, a timeout, a signal: nothing is left behind.
            try {
                Signals::defer(fn () => $this->giveBack($id, 0, self::GIVE_BACK));
            } catch (ConnectionError | CommandError) {
                // Nobody asks for it any more, so it ends by itself. What counts is the error before.
            }
            throw $error;
        }
    }

    private function giveBack(string $id, int $left, int $patience): bool
    {
        $answer = $this->call('release', ['return', $id], $patience);
        $wakeIn = $answer->reply[1];
        while ($wakeIn === 0) { // There is more to do than the server does in one call.
            $wakeIn = $this->call('wake', [])->reply[1];
        }
        // Where a reply was lost, the second one is "unknown", since the first try found the permit.
        return $left > 0 && ($answer->reply[2] !== 0 || $answer->repeated);
    }

    private function declareLimit(?int $until): void
    {
        if ($this->declared) {
            return;
        }
        $before = $this->call('limit', ['declare', $this->limit], self::PATIENCE, $until)->reply[5];
        if ($before !== -1 && $before !== $this->limit) {
            trigger_error("the limit of $this->name was declared as $before, now as $this->limit", E_USER_WARNING);
        }
        $this->declared = true;
    }

    /** The permit, or null if it was refused or queued; $answer tells which. */
    private function ask(
        string $id,
        string $address,
        string $wake,
        string $place,
        ?int $until,
        ?Answer &$answer = null,
    ): ?Permit {
        $arguments = ['declared', $this->limit, $address, $wake, self::LIVENESS, $id, 1, $this->lease, $place];
        return $this->repeat(self::PATIENCE, $until, function () use ($id, $arguments, $until, &$answer) {
            $answer = $this->call('acquire', $arguments, self::PATIENCE, $until);
            if ($answer->reply[2] !== 1) {
                return null;
            }
            $permit = new Permit($id, $answer->reply[3], $answer->sent + $this->lease);
            // Asking again begins the lease anew.
            return $permit->left() > 0 ? $permit : throw new ConnectionError(
                "answers come later than $this->lease ms, when the lease has ended");
        });
    }

    private function wait(string $id, ?int $until): Permit
    {
        // Hard to guess, as who knows it could send messages to it.
        $address = 'sem:wake:' . bin2hex(random_bytes(16));
        $place = 'wait';
        $listener = null;
        while (true) {
            // Who is not heard listening when its turn comes is taken for gone. So listen first, ask then.
            $listener ??= $this->repeat(self::PATIENCE, $until, fn () => new Listener($this->url, $address));
            $permit = $this->ask($id, $address, 'publish', $place, $until, $answer);
            if ($permit !== null) {
                return $permit;
            }
            $place = (string) $answer->reply[3];
            try {
                $listener->check();
                $permit = $this->waitForMessage($listener, $id, $answer, $until);
            } catch (ConnectionError) {
                $listener = null;
            }
            if ($permit !== null) {
                return $permit;
            }
        }
    }

    /** Null when it is time to ask again. */
    private function waitForMessage(Listener $listener, string $id, Answer $asked, ?int $until): ?Permit
    {
        $askAt = $asked->sent + self::ASK_EVERY;
        $wakeAt = $this->wakeAt($asked, $asked->reply[1]);
        while (true) {
            $message = $listener->next(min($askAt, $wakeAt ?? $askAt, $until ?? $askAt));
            $now = now();
            [$token, $end] = $this->grant($message, $id);
            // Otherwise it was granted before the server said "queued", and lost since: long ago.
            if ($token === 0 || ($token !== null && $end - $this->lease >= $asked->reply[0])) {
                // Asking tells why it left the queue without a permit. And when half of the lease
                // may be over, asking begins it anew.
                return $token === 0 || $now - $asked->sent >= $this->lease / 2
                    ? null
                    : new Permit($id, $token, $asked->sent + $this->lease);
            }
            if ($until !== null && $now >= $until) {
                throw $this->timeout();
            }
            if ($now >= $askAt) {
                return null;
            }
            if ($wakeAt !== null && $now >= $wakeAt) {
                $wakeAt = $this->wakeAt($asked, $this->call('wake', [], self::PATIENCE, $until)->reply[1]);
            }
        }
    }

    /** When to call wake: of those who wait only the first few do, one after the other. */
    private function wakeAt(Answer $asked, int $wakeIn): ?int
    {
        $delay = 20 * ($asked->reply[4] - 1);
        return $wakeIn >= 0 && $delay < self::ASK_EVERY ? now() + $wakeIn + $delay : null;
    }

    /**
     * Token and end of lease that a message tells for a request. Nulls if it says nothing about it,
     * or is nothing that a script sends.
     */
    private function grant(?string $message, string $id): array
    {
        $nothing = [null, null];
        if ($message === null || strlen($message) > 1_048_576 || preg_match('//u', $message) !== 1) {
            return $nothing;
        }
        $lines = explode("\n", $message);
        if (array_shift($lines) !== $this->name) {
            return $nothing;
        }
        $found = $nothing;
        foreach ($lines as $line) {
            if (preg_match('/\A([^ ]+) ([0-9]{1,16}) ([0-9]{1,16})\z/', $line, $words) !== 1
                || max((int) $words[2], (int) $words[3]) >= 2 ** 53) {
                return $nothing;
            }
            if ($words[1] === $id) {
                $found = [(int) $words[2], (int) $words[3]];
            }
        }
        return $found;
    }

    /** Each script may be called twice. The time is that before it was called first. */
    private function call(string $script, array $arguments, int $patience = self::PATIENCE, ?int $until = null): Answer
    {
        $sent = now();
        $tries = 0;
        return $this->repeat($patience, $until, function () use ($script, $arguments, $sent, &$tries) {
            $tries++;
            return new Answer($this->scripts->call($script, $this->keys, $arguments), $sent, $tries > 1);
        });
    }

    /** Again and again while Redis is away, for so many ms. */
    private function repeat(int $patience, ?int $until, callable $try): mixed
    {
        $giveUp = now() + $patience;
        while (true) {
            try {
                return $try();
            } catch (CommandError | ConnectionError $error) {
                if ($error instanceof CommandError && !$error->mayPass()) {
                    throw $error;
                }
                if ($until !== null && now() >= $until) {
                    throw $this->timeout($error);
                }
                if (now() >= $giveUp) {
                    throw $error;
                }
            }
            $this->scripts->disconnect();
            usleep(200_000);
            Signals::dispatch();
        }
    }

    private function timeout(?\Throwable $cause = null): Timeout
    {
        return new Timeout("no permit of $this->name came in time", previous: $cause);
    }
}
