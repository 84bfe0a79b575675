"""The shared part of the tests of a thin client."""

import contextlib
import functools
import itertools
import signal
import uuid

from programs import ProgramTest, Semaphore
from support import Server

COMMAND = []


def client_of(request):
    return request.split(":")[1]


def channel_of(request):
    return f"sem:wake:{client_of(request)}"


def soon(test):
    """Repeats a test that returns False because a busy machine was too slow."""

    @functools.wraps(test)
    def repeated(self, *arguments):
        if not any(test(self, *arguments) for _ in range(5)):
            self.fail(f"too slow in 5 attempts{self.report()}")

    return repeated


class ThinTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.server = Server()
        self.addCleanup(self.server.close)
        self.begin()

    @property
    def redis(self):
        return self.server.connection

    def begin(self, name=None):
        self.semaphore = Semaphore(self.redis, name)

    def start(self, limit, count, hold_ms, lease_ms, *timeout_ms, url=None, **environment):
        numbers = (limit, count, hold_ms, lease_ms, *timeout_ms)
        return self.start_program(COMMAND, url or self.server.url, self.semaphore.name, *numbers, **environment)

    def start_holding(self, hold_ms, lease_ms, count=1):
        program = self.start(1, count, hold_ms, lease_ms)
        self.eventually(lambda: program.has_printed("held"))
        return program

    def start_waiting(self, lease_ms=30_000, **environment):
        """Starts a program that waits, because the permit is held."""
        queued = self.semaphore.queued()
        program = self.start(1, 1, 0, lease_ms, **environment)
        self.eventually(lambda: self.semaphore.queued() == queued + 1)
        return program

    def end(self, program):
        """Ends a program with a signal that it can handle."""
        program.process.terminate()
        self.eventually(program.has_ended)

    def first_in_queue(self):
        return self.redis.zrange(self.semaphore.queue, 0, 0)[0]

    def last_number(self):
        """Returns the newest ticket or token, which contains the time of the server in microseconds."""
        return int(self.redis.hget(self.semaphore.state, "last_number"))

    def assert_nothing_is_left(self):
        self.assertEqual(self.semaphore.inspect(), (0, 0, 0), self.report())

    def assert_fails(self, program, seconds=60, message="."):
        """Checks that the program ends with an error within this time."""
        self.eventually(program.has_ended, seconds)
        self.assertNotEqual(program.process.returncode, 0, "it reports no error")
        if program.process.returncode != -signal.SIGTERM:
            self.assertRegex(program.errors(), message)

    def check_turns(self, number, *programs):
        """Checks that the permits were held one after another, that the tokens grow, and that none is held now.
        Returns the turns."""
        turns = [turn for program in programs for turn in self.finish(program)]
        turns.sort(key=lambda turn: turn[1])
        self.assertEqual(len(turns), number, self.report())
        for (token, _, until), (next_token, since, _) in itertools.pairwise(turns):
            self.assertGreater(next_token, token)
            self.assertGreaterEqual(since, until)
        self.assert_nothing_is_left()
        return turns

    def check_turn(self, program):
        """Checks the only turn of a program, and returns its token."""
        return self.check_turns(1, program)[0][0]

    @contextlib.contextmanager
    def calls_of_scripts(self):
        """Yields a list, to which the calls of scripts by their SHA-1 are added at the end. The server must know these
        scripts."""
        calls, mark = [], uuid.uuid4().hex
        with self.redis.monitor() as monitor:
            yield calls
            self.redis.echo(mark)
            commands = (command["command"] for command in monitor.listen())
            before = itertools.takewhile(lambda command: mark not in command, commands)
            calls += [command for command in before if command.upper().startswith("EVALSHA ")]
