"""Tests that several languages share one semaphore. `clients/test` runs this file.

    python3 together.py LANGUAGE...      (REDIS_URL names the server)

Each language has a program `turns NAME LIMIT COUNT HOLD_MS LEASE_MS`, which acquires COUNT permits, one after
another, and prints `held TOKEN MICROSECONDS` and `released MICROSECONDS` for each.
"""

import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest
import uuid

import redis

CLIENTS = pathlib.Path(__file__).resolve().parent
MANIFEST = json.loads((CLIENTS.parent / "lua/manifest.json").read_text("utf-8"))
SOURCES = {script["name"]: script["source"] for script in MANIFEST["scripts"]}
DEADLINE = 60
PROGRAMS = {
    "rust": [CLIENTS.parent / "target/debug/examples/turns"],
    "python": [sys.executable, CLIENTS / "python/turns.py"],
    "node": ["node", CLIENTS / "node/turns.js"],
    "bash": [CLIENTS / "bash/turns"],
    "ruby": [CLIENTS / "ruby/turns"],
    "php": [CLIENTS / "php/turns"],
    "c": [CLIENTS / "c/build/turns"],
}
# Each cycle of a shell starts several processes.
TURNS = {"bash": 40}
LANGUAGES = []


class Semaphore:
    """A semaphore with a unique name, and access to its scripts."""

    def __init__(self):
        self.connection = redis.Redis.from_url(os.environ["REDIS_URL"])
        self.started = []
        self.name = f"together-{uuid.uuid4()}"
        self.keys = [f"sem:{{{self.name}}}:{key}" for key in ("permits", "queue", "clients", "state")]

    def call(self, script, *arguments):
        return self.connection.eval(SOURCES[script], 4, *self.keys, *arguments)

    def inspect(self):
        """Returns the held weight and the number of waiting requests."""
        reply = self.call("inspect", 0, 0, 0, 0)
        return reply[4], reply[6]

    def calls(self):
        stats = self.connection.info("commandstats")
        names = ("cmdstat_evalsha", "cmdstat_eval")
        return sum(stats[name]["calls"] for name in names if name in stats)

    def start(self, language, limit, count, hold_ms=0, lease_ms=30_000):
        arguments = [self.name, limit, count, hold_ms, lease_ms]
        command = [str(part) for part in PROGRAMS[language] + arguments]
        # A separate process group, because a shell's child processes must be killed with it.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.started.append(process)
        return process

    def kill(self, process):
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    def kill_all(self):
        for process in self.started:
            if process.poll() is None:
                self.kill(process)


def spans(output):
    """Returns the token of each permit, and the times of its grant and its release."""
    words = [line.split() for line in output.splitlines()]
    turns = zip(words[::2], words[1::2])
    return [(int(held[1]), int(held[2]), int(released[1])) for held, released in turns]


def most_at_once(turns):
    """Returns the most concurrent holders. At the same microsecond, the release comes first."""
    events = sorted([(since, 1) for _, since, _ in turns] + [(until, -1) for _, _, until in turns])
    return max(itertools.accumulate(change for _, change in events))


class Together(unittest.TestCase):
    def setUp(self):
        self.begin()

    def begin(self):
        self.semaphore = Semaphore()
        self.addCleanup(self.semaphore.kill_all)

    def eventually(self, expected, look):
        deadline = time.monotonic() + DEADLINE
        while (seen := look()) != expected:
            self.assertLess(time.monotonic(), deadline, f"{seen}, not {expected}")
            time.sleep(0.01)

    def finish(self, process):
        output, _ = process.communicate(timeout=DEADLINE * 3)
        self.assertEqual(process.returncode, 0, process.args)
        return spans(output)

    def test_never_more_than_the_limit_in_thousands_of_turns(self):
        started = [
            (language, self.semaphore.start(language, 3, TURNS.get(language, 300), hold_ms=1))
            for language in LANGUAGES * 2
        ]
        turns = []
        for language, process in started:
            its = self.finish(process)
            self.assertEqual(len(its), TURNS.get(language, 300), language)
            turns += its
        self.assertLessEqual(most_at_once(turns), 3)
        self.assertEqual(len({token for token, _, _ in turns}), len(turns), "a token was issued twice")
        self.eventually((0, 0), self.semaphore.inspect)
        print(f"{len(turns)} permits, at most {most_at_once(turns)} at the same time", file=sys.stderr)

    def test_all_queue_in_one_order(self):
        first = "N:nobody:1:600000:the-first-of-them-all"
        self.semaphore.call("acquire", "declare_if_unset", 1, 600_000, first, "try")
        waiting = []
        for language in LANGUAGES * 2:
            waiting.append(self.semaphore.start(language, 1, 1))
            self.eventually((1, len(waiting)), self.semaphore.inspect)
        self.semaphore.call("release", "return", first)
        tokens = [self.finish(process)[0][0] for process in waiting]
        self.assertEqual(tokens, sorted(tokens))

    def test_each_is_woken_by_each_other_and_does_not_poll(self):
        for holder, waiter in itertools.product(LANGUAGES, LANGUAGES):
            with self.subTest(holder=holder, waiter=waiter):
                self.begin()
                holding = self.semaphore.start(holder, 1, 1, hold_ms=500)
                self.assertTrue(holding.stdout.readline().startswith("held "))
                waiting = self.semaphore.start(waiter, 1, 1)
                before = self.semaphore.calls()
                self.assertEqual(len(self.finish(waiting)), 1)
                holding.communicate(timeout=DEADLINE)
                # A few calls: connect, acquire, refresh once if the message was late, and release. Polling
                # would need many.
                self.assertLess(self.semaphore.calls() - before, 12)

    def test_who_is_killed_loses_its_place_in_time(self):
        for killed, next_one in zip(LANGUAGES, LANGUAGES[1:] + LANGUAGES[:1]):
            with self.subTest(killed=killed):
                self.begin()
                holding = self.semaphore.start(killed, 1, 1, hold_ms=600_000, lease_ms=2_000)
                self.assertTrue(holding.stdout.readline().startswith("held "))
                waiting = self.semaphore.start(killed, 1, 1)
                self.eventually((1, 1), self.semaphore.inspect)
                last = self.semaphore.start(next_one, 1, 1)
                self.eventually((1, 2), self.semaphore.inspect)
                self.semaphore.kill(waiting)
                self.semaphore.kill(holding)
                # The first process's lease must expire. The second process is no longer subscribed.
                self.assertEqual(len(self.finish(last)), 1)
                self.eventually((0, 0), self.semaphore.inspect)


if __name__ == "__main__":
    LANGUAGES += sys.argv[1:] or list(PROGRAMS)
    unittest.main(argv=sys.argv[:1])
