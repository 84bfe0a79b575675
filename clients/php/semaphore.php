<?php

// A thin client of redis-semaphore. README.md describes its use.

declare(strict_types=1);

namespace RedisSemaphore;

require_once __DIR__ . '/connections.php';
require_once __DIR__ . '/signals.php';

/** No permit was granted in time. */
final class Timeout extends \RuntimeException
{
}

/** The permit was lost before the work of withPermit() ended. */
final class Lost extends \RuntimeException
{
}

/** The server did not reply, or the connection failed. */
class ConnectionError extends \RuntimeException
{
    public function __construct(string $error)
    {
        parent::__construct(Texts::shown($error));
    }

    public function mayPass(): bool
    {
        return preg_match('/SSL.*certificate|Peer certificate/s', $this->getMessage()) !== 1;
    }
}

/** The subscription failed. Calls use another connection, and may still succeed. */
final class ListenerCut extends ConnectionError
{
}

/** The server returned an error. */
final class CommandError extends \RuntimeException
{
    public function __construct(string $error)
    {
        parent::__construct(Texts::shown($error));
    }

    public function mayPass(): bool
    {
        $passing = 'LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|NOREPLICAS|READONLY|ERR max number of clients';
        // Redis 6.2 adds a prefix to the errors of commands in scripts.
        return preg_match("/^(ERR Error running script .*: -)?($passing) /", $this->getMessage()) === 1;
    }
}

/** Returns the time of the monotonic clock in ms. */
function now(): int
{
    return intdiv(hrtime(true), 1_000_000);
}

final class Permit
{
    private readonly int $pid;
    /** Whether an earlier release got no reply, so the server may have released the permit. */
    public bool $releaseSent = false;

    public function __construct(
        public readonly string $id,
        public readonly int $fencingToken,
        /** Until when it is certainly held. A confirmed release sets it to 0. */
        public int $end,
        /** The name of the semaphore. */
        public readonly string $name,
    ) {
        $this->pid = getmypid();
    }

    /** Returns false in a forked child, which has only a copy of its parent's permit. */
    public function isOwn(): bool
    {
        return $this->pid === getmypid();
    }

    /** Returns for how many ms the permit is certainly held. 0: it may be lost. */
    public function expiresIn(): int
    {
        return max($this->end - now(), 0);
    }
}

final class Answer
{
    public function __construct(
        public readonly array $reply,
        public readonly int $sent,
    ) {
    }
}

final class Semaphore
{
    private const HEARTBEAT_TIMEOUT = 15_000; // ms: the server skips requests of a client that is silent for longer
    private const ASK_EVERY = 5_000; // a third of the heartbeat timeout
    private const PATIENCE = 30_000; // ms: how long a call is retried while Redis is unavailable
    private const GIVE_BACK = 2_000; // ms: how long the release of a request without a permit is retried
    private const MAX_WEIGHT = 4_294_967_295; // also the largest limit
    private const MAX_LEASE = 604_800_000;
    private const LEAST = ['acquire' => 5, 'release' => 3, 'wake' => 2]; // the numbers in a reply, at least

    /** The permits of withPermit(), and waiting requests, with their semaphores. Null: before the first of them. */
    private static ?array $held = null;
    /** The part of the IDs for the group. */
    private readonly string $group;
    private readonly Scripts $scripts;
    private readonly array $keys;
    private bool $declared = false;
    /** How many keys a call names. */
    private int $named = 4;

    public function __construct(
        private readonly string $name,
        private readonly int $limit,
        private readonly int $lease = 30_000,
        #[\SensitiveParameter] ?string $url = null,
        ?string $group = null,
    ) {
        if (preg_match('/\A[^{}\x00-\x1f\x7f]+\z/u', $name) !== 1 || strlen($name) > 512) {
            // The message contains only the beginning of the name, and escapes it, because a name may contain any
            // byte.
            $found = json_encode(substr($name, 0, 600), JSON_INVALID_UTF8_SUBSTITUTE | JSON_UNESCAPED_SLASHES);
            throw new \InvalidArgumentException('a name must have 1 to 512 bytes of UTF-8, without braces and control '
                . "characters, not $found of " . strlen($name) . ' bytes');
        }
        self::check('a limit', $limit, 0, self::MAX_WEIGHT);
        self::check('a lease', $lease, 1, self::MAX_LEASE);
        $this->group = match (true) {
            $group === null => '',
            str_contains($group, ',') => "$group:",
            default => "$group,1,0:",
        };
        if (!self::isWord("P:c:1:1:$this->group" . str_repeat('n', 16))) {
            $found = json_encode(substr($group, 0, 100), JSON_INVALID_UTF8_SUBSTITUTE | JSON_UNESCAPED_SLASHES);
            throw new \InvalidArgumentException('a group must be NAME or NAME,SHARE,CAP, with a name of 1 to 64 letters, '
                . 'digits, ".", "_" or "-", a share from 1 to 1000, and a cap from 1 to ' . self::MAX_WEIGHT
                . " or 0 for none, not $found");
        }
        $given = $url ?? getenv('REDIS_URL');
        $this->scripts = new Scripts(parseUrl($given === false ? 'redis://127.0.0.1' : $given));
        $this->keys = array_map(fn ($key) => "sem:{{$name}}:$key", ['permits', 'queue', 'clients', 'state', 'order', 'turns']);
    }

    /** A copy in another process would be another client, and would contain the password. */
    public function __serialize(): array
    {
        throw new \LogicException('a Semaphore cannot be serialized: create it in each process');
    }

    /** Returns what print_r and var_dump show: not the URL, which may contain a password. */
    public function __debugInfo(): array
    {
        return ['name' => $this->name];
    }

    /** Returns a permit, or null if none is free or other requests wait. */
    public function tryAcquire(): ?Permit
    {
        return $this->acquireBy(null, fn ($id) => $this->ask($id, 'try', null));
    }

    /** Waits for a permit. Throws Timeout if none is granted within $timeout ms. */
    public function acquire(?int $timeout = null): Permit
    {
        self::check('a timeout', $timeout ?? 0, 0, 2 ** 53 - 1);
        $until = $timeout === null ? null : now() + $timeout;
        // Usually a permit is free. Then no subscription is needed.
        return $this->acquireBy($until, fn ($id) => $this->ask($id, 'try', $until) ?? $this->wait($id, $until));
    }

    /** Releases a permit. Returns whether this process held it until now: false if it was lost or released before. */
    public function release(Permit $permit): bool
    {
        if ($permit->name !== $this->name) {
            throw new \InvalidArgumentException("the permit belongs to the semaphore $permit->name, not to $this->name");
        }
        return $permit->isOwn() && Signals::defer(function () use ($permit) {
            // On a closed connection, the first attempt fails. A lost permit then looks like a released one.
            $this->scripts->check();
            return $this->giveBack($permit, min($permit->expiresIn(), self::PATIENCE));
        });
    }

    /**
     * Calls $work with a permit, and then releases it. Throws Lost afterwards if the permit was lost, or released by
     * $work, unless $work throws an exception.
     */
    public function withPermit(callable $work, ?int $timeout = null): mixed
    {
        // No signal can arrive between the grant and the block that releases the permit.
        return Signals::defer(function () use ($work, $timeout) {
            $permit = $this->acquire($timeout);
            $this->releaseAtEnd($permit);
            try {
                $result = Signals::allow(fn () => $work($permit));
            } finally {
                unset(self::$held[$permit->id]);
                $held = $this->release($permit);
            }
            $lost = "semaphore $this->name: the permit $permit->id was lost or released before";
            return $held ? $result : throw new Lost($lost);
        });
    }

    /** PHP runs no "catch" or "finally" if exit or a fatal error ends the script during a wait or withPermit(). */
    private function releaseAtEnd(Permit $permit): void
    {
        if (self::$held === null) {
            register_shutdown_function(static fn () => Signals::defer(self::releaseAll(...)));
            self::$held = [];
        }
        self::$held[$permit->id] = [$this, $permit];
    }

    /**
     * Releases the permits of withPermit() and the waiting requests, the innermost first. Throws the first error after
     * all attempts.
     */
    private static function releaseAll(): void
    {
        $failure = null;
        foreach (array_reverse(self::$held) as [$semaphore, $permit]) {
            try {
                $semaphore->release($permit);
            } catch (\Throwable $error) {
                $failure ??= $error;
            }
        }
        if ($failure !== null) {
            throw $failure;
        }
    }

    private static function check(string $what, int $number, int $from, int $to): void
    {
        if ($number < $from || $number > $to) {
            throw new \InvalidArgumentException("$what must be a number from $from to $to, not $number");
        }
    }

    private function acquireBy(?int $until, callable $how): ?Permit
    {
        // Each request has its own client and channel, so its messages concern no other permit.
        $client = preg_replace('/[^A-Za-z0-9._-]/', '-', gethostname()) . '.' . getmypid() . '.' . bin2hex(random_bytes(8));
        $id = "P:$client:1:$this->lease:$this->group" . bin2hex(random_bytes(16));
        $this->releaseAtEnd(new Permit($id, 0, 0, $this->name));
        try {
            return Signals::defer(fn () => $how($id), dispatches: true);
        } catch (\Throwable $error) { // An error, a timeout or a signal leaves no request behind.
            Signals::defer(fn () => $this->giveUp($id));
            throw $error;
        } finally {
            unset(self::$held[$id]);
        }
    }

    /**
     * Ignores its own errors, because the earlier error matters. If the release fails, the server skips the request,
     * or the permit expires.
     */
    private function giveUp(string $id): void
    {
        try {
            $this->giveBack(new Permit($id, 0, 0, $this->name), self::GIVE_BACK);
        } catch (ConnectionError | CommandError) {
        }
    }

    private function giveBack(Permit $permit, int $patience): bool
    {
        $left = $permit->expiresIn();
        [$reply, $wasSent] = $this->repeat($patience, null, function () use ($permit) {
            [$wasSent, $permit->releaseSent] = [$permit->releaseSent, true];
            try {
                return [$this->call('release', ['return', $permit->id], 0)->reply, $wasSent];
            } catch (CommandError $error) { // The server has released nothing.
                $permit->releaseSent = $wasSent;
                throw $error;
            }
        });
        // If a reply was lost, the retry returns "unknown", because an earlier attempt released the permit.
        $held = $left > 0 && ($reply[2] !== 0 || $wasSent);
        [$permit->releaseSent, $permit->end] = [false, 0];
        $this->serveOthers($reply[1]);
        return $held;
    }

    /** Calls wake until the server has no more work. Returns the last wake_in. */
    private function serve(int $wakeIn, ?int $until = null, int $patience = self::PATIENCE): int
    {
        while ($wakeIn === 0) {
            $wakeIn = $this->call('wake', [], $patience, $until)->reply[1];
        }
        return $wakeIn;
    }

    /**
     * Calls wake like serve() after a successful reply, but ignores errors. Nothing is retried, because the waiters
     * call wake, too.
     */
    private function serveOthers(int $wakeIn): void
    {
        try {
            $this->serve($wakeIn, patience: 0);
        } catch (ConnectionError | CommandError) {
        }
    }

    /** Returns the permit. Returns null if none was granted, or if the request was queued. `$answer` gets the reply. */
    private function ask(string $id, string $place, ?int $until, ?Answer &$answer = null): ?Permit
    {
        return $this->repeat(self::PATIENCE, $until, function () use ($id, $place, $until, &$answer) {
            do {
                $kind = $this->declared ? 'declare_if_unset' : 'declare';
                $arguments = [$kind, $this->limit, self::HEARTBEAT_TIMEOUT, $id, $place];
                $answer = $this->call('acquire', $arguments, self::PATIENCE, $until);
                [, $wakeIn, $before, $code, $token] = $answer->reply;
                if (!$this->declared && $before !== -1 && $before !== $this->limit) {
                    // Many programs turn the errors of trigger_error into exceptions, which would end the acquire.
                    error_log("semaphore $this->name: the limit $this->limit replaces the declared limit $before");
                }
                $this->declared = true;
                if ($code === 0) {
                    $this->serve($wakeIn, $until);
                }
            } while ($code === 0 && $wakeIn === 0); // A permit may be free now.
            if ($code !== 1) {
                return null;
            }
            $this->serveOthers($wakeIn);
            $permit = new Permit($id, $token, $this->endsAfter($answer->sent), $this->name);
            // The retry restarts the lease.
            return $permit->expiresIn() > 0 ? $permit : throw new ConnectionError(
                "the lease of $this->lease ms expired before the reply arrived: use a longer lease");
        });
    }

    private function wait(string $id, ?int $until): Permit
    {
        $channel = 'sem:wake:' . explode(':', $id)[1];
        $place = 'wait';
        $listener = $permit = $cut = null;
        while ($permit === null) {
            // The server skips requests of a client that is not subscribed. So this subscribes before it queues.
            if ($listener === null) {
                if ($place !== 'wait') {
                    // Each subscription may be cut, so none of them may restart the timeout.
                    if ($until !== null && now() >= $until) {
                        throw $this->timeout($cut);
                    }
                    $this->pause($until);
                }
                $made = $this->scripts->made;
                $listener = $this->repeat(self::PATIENCE, $until, fn () => new Listener($this->scripts->server, $channel));
            }
            $permit = $this->ask($id, $place, $until, $answer);
            $place = (string) $answer->reply[4];
            if ($permit === null && $made !== $this->scripts->made) {
                $listener = null; // After a failover, a new connection may lead to another server.
                continue;
            }
            try {
                $permit ??= $this->waitForMessage($listener, $id, $answer, $until);
            } catch (ListenerCut $cut) {
                $listener = null;
            }
        }
        return $permit;
    }

    /** Returns a permit, or null when the next heartbeat is due. */
    private function waitForMessage(Listener $listener, string $id, Answer $asked, ?int $until): ?Permit
    {
        $listener->check();
        $askAt = $asked->sent + self::ASK_EVERY;
        $wakeAt = self::wakeAt($asked, $this->serve($asked->reply[1], $until));
        while (true) {
            $message = $listener->next(min($wakeAt, $until ?? $wakeAt));
            [$token, $end] = $this->grant($message, $id);
            $now = now();
            // An earlier grant was lost before the server returned "queued", so its message is stale.
            if ($token === 0 || ($token !== null && $end - $this->lease >= $asked->reply[0])) {
                // Another acquire returns why the request was removed. If half of the lease may be over,
                // another acquire restarts it.
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

    /** Returns until when the lease is certainly valid. The server counts in whole ms. */
    private function endsAfter(int $sent): int
    {
        return $sent + $this->lease - 1;
    }

    /** Returns when to call wake, or when the heartbeat is due. The server chooses the client that calls wake. */
    private static function wakeAt(Answer $asked, int $wakeIn): int
    {
        $askAt = $asked->sent + self::ASK_EVERY;
        return $wakeIn < 0 ? $askAt : min($askAt, now() + $wakeIn);
    }

    /**
     * Returns the token and the expiry of a request in a message. Returns nulls if the message does not
     * contain the request, or was not sent by a script. Releases other permits that this client was granted.
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
        $group = '[A-Za-z0-9._-]{1,64},(?:[1-9][0-9]{0,2}|1000),(0|[1-9][0-9]{0,9}):';
        $start = '[PSN]:[A-Za-z0-9._-]{1,100}:([1-9][0-9]{0,9}):([1-9][0-9]{0,8}):';
        return preg_match("/\A$start(?:$group)?[A-Za-z0-9_-]{16,64}\z/", $text, $parts) === 1
            && max((int) $parts[1], (int) ($parts[3] ?? 0)) <= self::MAX_WEIGHT && (int) $parts[2] <= self::MAX_LEASE;
    }

    /**
     * Calls a script, with retries: a repeated call has no further effect. The `Answer` contains a time before the
     * first attempt.
     */
    private function call(string $script, array $arguments, int $patience = self::PATIENCE, ?int $until = null): Answer
    {
        $sent = now();
        return $this->repeat($patience, $until, function () use ($script, $arguments, $sent) {
            $reply = $this->callWithKeys($script, $arguments);
            if (!is_array($reply) || count(array_filter($reply, is_int(...))) < self::LEAST[$script]) {
                throw new CommandError("the reply to $script is not of a Redis server");
            }
            return new Answer($reply, $sent);
        });
    }

    /** Names the keys for groups only if the semaphore has groups. */
    private function callWithKeys(string $script, array $arguments): mixed
    {
        try {
            return $this->scripts->call($script, array_slice($this->keys, 0, $this->named), $arguments);
        } catch (CommandError $error) {
            if (!str_starts_with($error->getMessage(), 'SEM_GROUPS ')) {
                throw $error;
            }
            $this->named = count($this->keys);
            return $this->scripts->call($script, $this->keys, $arguments);
        }
    }

    /** Retries for $patience ms while Redis is unavailable. */
    private function repeat(int $patience, ?int $until, callable $try): mixed
    {
        $giveUp = now() + $patience;
        while (true) {
            try {
                return $try();
            } catch (CommandError | ConnectionError $error) {
                if (!$error->mayPass()) {
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
            $this->pause($until);
        }
    }

    private function pause(?int $until): void
    {
        usleep(1000 * max(0, min(200, ($until ?? PHP_INT_MAX) - now())));
        Signals::dispatch();
    }

    private function timeout(?\Throwable $cause = null): Timeout
    {
        return new Timeout("semaphore $this->name: no permit was granted in time" . ($cause === null ? '' : ": {$cause->getMessage()}"),
            previous: $cause);
    }
}
