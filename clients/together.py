"""Tests that several languages share one semaphore. `clients/test` runs this file.

    python3 together.py LANGUAGE...      (REDIS_URL names the server)
"""

import itertools
import os
import sys
import unittest

import redis

from programs import CLIENTS, ProgramTest, Semaphore

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1")
PROGRAMS = {
    "rust": [CLIENTS.parent / "target/debug/examples/turns"],
    "python": [sys.executable, CLIENTS / "python/turns.py"],
    "node": ["node", CLIENTS / "node/turns.js"],
    "ruby": [CLIENTS / "ruby/turns"],
    "php": [CLIENTS / "php/turns"],
}
TURNS = 300
LANGUAGES = []


def most_at_once(turns):
    """Returns the most concurrent holders. At the same microsecond, the release comes first."""
    events = sorted([(since, 1) for _, since, _ in turns] + [(until, -1) for _, _, until in turns])
    return max(itertools.accumulate(change for _, change in events))


class Together(ProgramTest):
    def setUp(self):
        super().setUp()
        self.connection = redis.Redis.from_url(URL, decode_responses=True)
        self.addCleanup(self.connection.close)
        self.begin()

    def begin(self):
        self.semaphore = Semaphore(self.connection)

    def start(self, language, limit, count, hold_ms=0, lease_ms=30_000):
        return self.start_program(PROGRAMS[language], URL, self.semaphore.name, limit, count, hold_ms, lease_ms)

    def start_holding(self, language, **times):
        holding = self.start(language, 1, 1, **times)
        self.eventually(lambda: holding.has_printed("held"))
        return holding

    def eventually_queued(self, number):
        self.eventually(lambda: self.semaphore.inspect() == (1, 1, number))

    def eventually_empty(self):
        self.eventually(lambda: self.semaphore.inspect() == (0, 0, 0))

    def calls(self):
        stats = self.connection.info("commandstats")
        names = ("cmdstat_evalsha", "cmdstat_eval")
        return sum(stats[name]["calls"] for name in names if name in stats)

    def test_never_more_than_the_limit_in_thousands_of_turns(self):
        started = [self.start(language, 3, TURNS, hold_ms=1) for language in LANGUAGES * 2]
        turns = []
        for program in started:
            its = self.finish(program)
            self.assertEqual(len(its), TURNS, program.process.args)
            turns += its
        self.assertLessEqual(most_at_once(turns), 3)
        self.assertEqual(len({token for token, _, _ in turns}), len(turns), "a token was issued twice")
        self.eventually_empty()
        print(f"{len(turns)} permits, at most {most_at_once(turns)} at the same time", file=sys.stderr)

    def test_all_queue_in_one_order(self):
        first = self.semaphore.hold(600_000)
        waiting = []
        for language in LANGUAGES * 2:
            waiting.append(self.start(language, 1, 1))
            self.eventually_queued(len(waiting))
        self.semaphore.release(first)
        tokens = [self.finish(program)[0][0] for program in waiting]
        self.assertEqual(tokens, sorted(tokens))

    def test_each_is_woken_by_each_other_and_does_not_poll(self):
        for holder, waiter in itertools.product(LANGUAGES, LANGUAGES):
            with self.subTest(holder=holder, waiter=waiter):
                self.begin()
                holding = self.start_holding(holder, hold_ms=500)
                waiting = self.start(waiter, 1, 1)
                before = self.calls()
                self.assertEqual(len(self.finish(waiting)), 1)
                self.finish(holding)
                # A few calls: connect, acquire, refresh once if the message was late, and release. Polling
                # would need many.
                self.assertLess(self.calls() - before, 12)

    def test_who_is_killed_loses_its_place_in_time(self):
        for killed, next_one in zip(LANGUAGES, LANGUAGES[1:] + LANGUAGES[:1]):
            with self.subTest(killed=killed):
                self.begin()
                holding = self.start_holding(killed, hold_ms=600_000, lease_ms=2_000)
                waiting = self.start(killed, 1, 1)
                self.eventually_queued(1)
                last = self.start(next_one, 1, 1)
                self.eventually_queued(2)
                waiting.kill()
                holding.kill()
                # The first process's lease must expire. The second process is no longer subscribed.
                self.assertEqual(len(self.finish(last)), 1)
                self.eventually_empty()


if __name__ == "__main__":
    LANGUAGES += sys.argv[1:] or list(PROGRAMS)
    unittest.main(argv=sys.argv[:1])
