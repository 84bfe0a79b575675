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
class ConnectionError extends \RuntimeException
{
}

/** The same of the connection that listens, while calls may go well. */
final class ListenerCut extends ConnectionError
{
}

/** What the server answered is an error. */
final class CommandError extends \RuntimeException
{
    public function mayPass(): bool
    {
        $passing = 'LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|NOREPLICAS|READONLY|ERR max number of clients';
        // Redis 6.2 puts a text in front of errors that commands in a script meet.
        return preg_match("/^(ERR Error running script .*: -)?($passing) /", $this->getMessage()) === 1;
    }
}

/** The time in ms of a clock that nobody sets back or forth. */
function now(): int
{
    return intdiv(hrtime(true), 1_000_000);
}

final class Permit
{
    private readonly int $pid;
    /** Whether a release that ended with an error may have given it back. */
    public bool $releaseSent = false;

    public function __construct(
        public readonly string $id,
        public readonly int $token,
        private readonly int $end,
        /** That of its semaphore. */
        public readonly string $name,
    ) {
        $this->pid = getmypid();
    }

    /** A forked child has a copy, which is not its own. */
    public function isOwn(): bool
    {
        return $this->pid === getmypid();
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
    private const HEARTBEAT_TIMEOUT = 15_000; // ms: the server passes over a waiter that was silent for so long
    private const ASK_EVERY = 5_000; // a third of it
    private const PATIENCE = 30_000; // ms: how long a call is repeated while Redis is away
    private const GIVE_BACK = 2_000; // ms: and how long giving back what did not become a permit
    private const MAX_WEIGHT = 4_294_967_295; // and limit
    private const MAX_LEASE = 604_800_000;

    /** What hold() has to give back, with the semaphores. Null: nothing gives it back at the end yet. */
    private static ?array $held = null;
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
            // Escaped, as it may have anything in it, and no more than its beginning.
            $found = json_encode(substr($name, 0, 600), JSON_INVALID_UTF8_SUBSTITUTE | JSON_UNESCAPED_SLASHES);
            throw new \InvalidArgumentException('a name has 1 to 512 bytes of UTF-8, no { and }, and no control '
                . "characters, not $found of " . strlen($name) . ' bytes');
        }
        self::check('a limit', $limit, 0, self::MAX_WEIGHT);
        self::check('a lease', $lease, 1, self::MAX_LEASE);
        $this->url = $url ?? (getenv('REDIS_URL') ?: 'redis://127.0.0.1');
        $this->scripts = new Scripts($this->url);
        $this->keys = array_map(fn ($key) => "sem:{{$name}}:$key", ['permits', 'queue', 'clients', 'state']);
    }

    /** A permit, or null when none is free, or somebody else waits. */
    public function try(): ?Permit
    {
        return $this->acquireBy(null, fn ($id) => $this->ask($id, 'try', null));
    }

    /** Waits for a permit, for so many ms if that is given. */
    public function acquire(?int $timeout = null): Permit
    {
        self::check('a timeout', $timeout ?? 0, 0, 2 ** 53 - 1);
        $until = $timeout === null ? null : now() + $timeout;
        // Most of the time nobody waits. Then there is no need to listen.
        return $this->acquireBy($until, fn ($id) => $this->ask($id, 'try', $until) ?? $this->wait($id, $until));
    }

    /** Whether the permit was held until now, by this process. */
    public function release(Permit $permit): bool
    {
        if ($permit->name !== $this->name) {
            throw new \InvalidArgumentException("the permit is one of $permit->name, not of $this->name");
        }
        return $permit->isOwn() && Signals::defer(
            fn () => $this->giveBack($permit, min($permit->left(), self::PATIENCE)));
    }

    /** Calls $work with a permit, and gives it back. Throws Lost at the end if it was lost before. */
    public function hold(callable $work, ?int $timeout = null): mixed
    {
        // No signal comes between the permit and the block that gives it back.
        return Signals::defer(function () use ($work, $timeout) {
            $permit = $this->acquire($timeout);
            self::releaseAtEnd();
            self::$held[$permit->id] = [$this, $permit];
            try {
                $result = Signals::allow(fn () => $work($permit));
            } finally {
                unset(self::$held[$permit->id]);
                $held = $this->release($permit);
            }
            return $held ? $result : throw new Lost("the permit $permit->id of $this->name was lost");
        });
    }

    /** No "finally" is run when the script ends within hold(), by exit or a fatal error. */
    private static function releaseAtEnd(): void
    {
        if (self::$held === null) {
            register_shutdown_function(static function () {
                foreach (self::$held as [$semaphore, $permit]) {
                    $semaphore->release($permit);
                }
            });
            self::$held = [];
        }
    }

    private static function check(string $what, int $number, int $from, int $to): void
    {
        if ($number < $from || $number > $to) {
            throw new \InvalidArgumentException("$what is a number from $from to $to, not $number");
        }
    }

    private function acquireBy(?int $until, callable $how): ?Permit
    {
        // A client of its own, and so a channel: what comes there is about nothing else that is held.
        $client = preg_replace('/[^A-Za-z0-9._-]/', '-', gethostname()) . '.' . getmypid() . '.' . bin2hex(random_bytes(8));
        $id = "P:$client:1:$this->lease:" . bin2hex(random_bytes(16));
        try {
            return Signals::defer(fn () => $how($id), dispatches: true);
        } catch (\Throwable $error) { // An error, a timeout, a signal: nothing is left behind.
            Signals::defer(fn () => $this->giveUp($id));
            throw $error;
        }
    }

    /** What counts is the error before; where this fails it ends by itself, as nobody asks for it any more. */
    private function giveUp(string $id): void
    {
        try {
            $this->giveBack(new Permit($id, 0, 0, $this->name), self::GIVE_BACK);
        } catch (ConnectionError | CommandError) {
        }
    }

    private function giveBack(Permit $permit, int $patience): bool
    {
        [$left, $repeated, $permit->releaseSent] = [$permit->left(), $permit->releaseSent, true];
        $answer = $this->call('release', ['return', $permit->id], $patience);
        // Where a reply was lost, the second one is "unknown", since the first try found the permit.
        $held = $left > 0 && ($answer->reply[2] !== 0 || $answer->repeated || $repeated);
        $permit->releaseSent = false;
        $this->serveOthers($answer->reply[1]);
        return $held;
    }

    /** While there is more to do than the server does in one call. The wake_in after that. */
    private function serve(int $wakeIn, ?int $until = null, int $patience = self::PATIENCE): int
    {
        while ($wakeIn === 0) {
            $wakeIn = $this->call('wake', [], $patience, $until)->reply[1];
        }
        return $wakeIn;
    }

    /**
     * The same after an answer that is good, whatever comes of this. So it is not repeated, either:
     * whoever waits calls wake, too.
     */
    private function serveOthers(int $wakeIn): void
    {
        try {
            $this->serve($wakeIn, patience: 0);
        } catch (ConnectionError | CommandError) {
        }
    }

    /** The permit, or null if it was refused or queued; $answer tells which. */
    private function ask(string $id, string $place, ?int $until, ?Answer &$answer = null): ?Permit
    {
        return $this->repeat(self::PATIENCE, $until, function () use ($id, $place, $until, &$answer) {
            do {
                $kind = $this->declared ? 'declare_if_unset' : 'declare';
                $arguments = [$kind, $this->limit, self::HEARTBEAT_TIMEOUT, $id, $place];
                $answer = $this->call('acquire', $arguments, self::PATIENCE, $until);
                [, $wakeIn, $before, $code, $token] = $answer->reply;
                if (!$this->declared && $before !== -1 && $before !== $this->limit) {
                    trigger_error("the limit of $this->name was declared as $before, now as $this->limit", E_USER_WARNING);
                }
                $this->declared = true;
                if ($code === 0) {
                    $this->serve($wakeIn, $until);
                }
            } while ($code === 0 && $wakeIn === 0); // One may be free now.
            if ($code !== 1) {
                return null;
            }
            $this->serveOthers($wakeIn);
            $permit = new Permit($id, $token, $this->endsAfter($answer->sent), $this->name);
            // Asking again begins the lease anew.
            return $permit->left() > 0 ? $permit : throw new ConnectionError(
                "answers come later than $this->lease ms, when the lease has ended");
        });
    }

    private function wait(string $id, ?int $until): Permit
    {
        $channel = 'sem:wake:' . explode(':', $id)[1];
        $place = 'wait';
        $listener = $permit = null;
        while ($permit === null) {
            // Who is not heard listening when its turn comes is taken for gone. So listen first, ask then.
            if ($listener === null) {
                $made = $this->scripts->made;
                $listener = $this->repeat(self::PATIENCE, $until, fn () => new Listener($this->url, $channel));
            }
            $permit = $this->ask($id, $place, $until, $answer);
            $place = (string) $answer->reply[4];
            if ($permit === null && $made !== $this->scripts->made) {
                $listener = null; // A new connection may lead to another server, after a failover.
                continue;
            }
            try {
                $permit ??= $this->waitForMessage($listener, $id, $answer, $until);
            } catch (ListenerCut) {
                $listener = null;
            }
        }
        return $permit;
    }

    /** Null when it is time to ask again. */
    private function waitForMessage(Listener $listener, string $id, Answer $asked, ?int $until): ?Permit
    {
        $listener->check();
        $askAt = $asked->sent + self::ASK_EVERY;
        $wakeAt = self::wakeAt($asked, $this->serve($asked->reply[1], $until));
        while (true) {
            $message = $listener->next(min($wakeAt, $until ?? $wakeAt));
            [$token, $end] = $this->grant($message, $id);
            $now = now();
            // Otherwise it was granted before the server said "queued", and lost since: long ago.
            if ($token === 0 || ($token !== null && $end - $this->lease >= $asked->reply[0])) {
                // Asking tells why it left the queue without a permit. And when half of the lease
                // may be over, asking begins it anew.
                return $token === 0 || $now - $asked->sent >= $this->lease / 2
                    ? null
                    : new Permit($id, $token, $this->endsAfter($asked->sent), $this->name);
            }
            if ($until !== null && $now >= $until) {
                throw $this->timeout();
            }
            if ($now >= $askAt) {
                return null;
            }
            if ($now >= $wakeAt) {
                $wakeAt = self::wakeAt($asked, $this->serve(0, $until));
            }
        }
    }

    /** Until when a lease is surely held: the server counts in whole ms. */
    private function endsAfter(int $sent): int
    {
        return $sent + $this->lease - 1;
    }

    /** When to call wake, if not to ask again: the server chooses who does. */
    private static function wakeAt(Answer $asked, int $wakeIn): int
    {
        $askAt = $asked->sent + self::ASK_EVERY;
        return $wakeIn < 0 ? $askAt : min($askAt, now() + $wakeIn);
    }

    /**
     * Token and end of lease that a message tells for a request. Nulls if it says nothing about it, or
     * is nothing that a script sends. Gives back what else this client got.
     */
    private function grant(?string $message, string $id): array
    {
        $nothing = [null, null];
        $lines = explode("\n", $message ?? '');
        if (array_shift($lines) !== $this->name || strlen($message) > 1_048_576 || preg_match('//u', $message) !== 1) {
            return $nothing;
        }
        $grants = [];
        foreach ($lines as $line) {
            if (preg_match('/\A([^ ]+) ([0-9]{1,16}) ([0-9]{1,16})\z/', $line, $parts) !== 1 || !self::isWord($parts[1])
                || max((int) $parts[2], (int) $parts[3]) >= 2 ** 53) {
                return $nothing;
            }
            $grants[$parts[1]] = [(int) $parts[2], (int) $parts[3]];
        }
        $own = substr($id, 0, strpos($id, ':1:') + 1);
        foreach ($grants as $other => [$token]) {
            if ($other !== $id && $token > 0 && str_starts_with($other, $own)) {
                $this->giveUp($other);
            }
        }
        return $grants[$id] ?? $nothing;
    }

    private static function isWord(string $text): bool
    {
        $grammar = '/\A[PSN]:[A-Za-z0-9._-]{1,100}:([1-9][0-9]{0,9}):([1-9][0-9]{0,8}):[A-Za-z0-9_-]{16,64}\z/';
        return preg_match($grammar, $text, $parts) === 1
            && (int) $parts[1] <= self::MAX_WEIGHT && (int) $parts[2] <= self::MAX_LEASE;
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
        return new Timeout("no permit of $this->name came in time" . ($cause === null ? '' : ": {$cause->getMessage()}"),
            previous: $cause);
    }
}
