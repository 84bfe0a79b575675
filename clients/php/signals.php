<?php

// With pcntl_async_signals(true), the handlers of a program may throw exceptions at any point. This class
// defers signals to points at which an exception loses no permit.

declare(strict_types=1);

namespace RedisSemaphore;

final class Signals
{
    /** Whether dispatch() may run handlers. Null: signals are not deferred. */
    private static ?bool $dispatches = null;

    /** Runs $work with deferred signals. Handlers run at its end, and if $dispatches, in each dispatch(), too. */
    public static function defer(callable $work, bool $dispatches = false): mixed
    {
        $before = self::$dispatches;
        if ($before === null && !(function_exists('pcntl_async_signals') && pcntl_async_signals())) {
            return $work();
        }
        try {
            pcntl_async_signals(false);
            self::$dispatches = $dispatches;
            return $work();
        } finally {
            self::$dispatches = $before;
            if ($before === null) {
                pcntl_async_signals(true);
                pcntl_signal_dispatch();
            }
        }
    }

    /** Runs $work without deferral, within defer(). */
    public static function allow(callable $work): mixed
    {
        $before = self::$dispatches;
        if ($before === null) {
            return $work();
        }
        try {
            self::$dispatches = null;
            pcntl_async_signals(true);
            pcntl_signal_dispatch();
            return $work();
        } finally {
            pcntl_async_signals(false);
            self::$dispatches = $before;
        }
    }

    /** Runs handlers, at a point at which an exception loses no permit. */
    public static function dispatch(): void
    {
        if (self::$dispatches === true) {
            pcntl_signal_dispatch();
        }
    }
}
