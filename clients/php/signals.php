<?php

// Signals that a program has made exceptions, with pcntl_async_signals(true), come anywhere. Here
// they wait until there is a point at which nothing gets lost.

declare(strict_types=1);

namespace RedisSemaphore;

final class Signals
{
    /** Whether dispatch() may throw them; null when they are not deferred. */
    private static ?bool $dispatches = null;

    /** Does that, and lets signals throw at its end, or before where dispatch() is called, if they may. */
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

    /** Within defer(): lets signals throw anywhere. */
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

    /** A point at which nothing gets lost. */
    public static function dispatch(): void
    {
        if (self::$dispatches === true) {
            pcntl_signal_dispatch();
        }
    }
}
