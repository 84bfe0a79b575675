"""Runs the program `turns` of a client. The tests of this folder use this file.

    turns NAME LIMIT COUNT HOLD_MS LEASE_MS [TIMEOUT_MS]      (REDIS_URL names the server)

The program acquires COUNT permits, one after another. For each permit, it prints `held TOKEN MICROSECONDS` and
`released MICROSECONDS`. Only the programs of thin clients have a timeout.
"""

import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest
import uuid

CLIENTS = pathlib.Path(__file__).resolve().parent
MANIFEST = json.loads((CLIENTS.parent / "lua/manifest.json").read_text("utf-8"))
SOURCES = {script["name"]: script["source"] for script in MANIFEST["scripts"]}
KEYS = ("permits", "queue", "clients", "state", "order", "turns")
DEADLINE = 120  # s, enough for any busy machine


class Semaphore:
    """A semaphore, by default with a unique name, and access to its scripts."""

    def __init__(self, connection, name=None):
        self.connection = connection
        self.name = name or f"test-{uuid.uuid4()}"
        self.keys = [f"sem:{{{self.name}}}:{key}" for key in KEYS]
        self.permits, self.queue, self.clients, self.state = self.keys[:4]

    def call(self, script, *arguments):
        return self.connection.eval(SOURCES[script], len(self.keys), *self.keys, *arguments)

    def inspect(self):
        """Returns the held weight, the number of holders and the number of waiting requests."""
        return tuple(self.call("inspect", 0, 0, 0, 0)[4:7])

    def queued(self):
        return self.connection.zcard(self.queue)

    def hold(self, lease_ms=30_000):
        """Declares the limit 1, and acquires the permit. Returns its ID."""
        holder = f"N:holder:1:{lease_ms}:{uuid.uuid4().hex}"
        granted = self.call("acquire", "declare", 1, 15_000, holder, "try")[3]
        assert granted == 1, "no permit is free"
        return holder

    def release(self, holder):
        self.call("release", "return", holder)


class Program:
    """A process that runs `turns`. Its output goes to files, so that no pipe can block it."""

    def __init__(self, command, url, name, *numbers, **environment):
        self._output, self._errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*command, name, *map(str, numbers)],
            env={**os.environ, "REDIS_URL": url, **environment},
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._errors,
        )

    def lines(self):
        return _text(self._output).splitlines()

    def errors(self):
        return _text(self._errors)

    def has_printed(self, word):
        return any(line.startswith(word) for line in self.lines())

    def has_ended(self):
        return self.process.poll() is not None

    def turns(self):
        """Returns the token of each permit, and the times of its grant and its release."""
        words = [line.split() for line in self.lines()]
        return [(int(held[1]), int(held[2]), int(released[1])) for held, released in zip(words[::2], words[1::2])]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        self.kill()
        self._output.close()
        self._errors.close()


def _text(file):
    # The process shares the position of the file, so this must not move it.
    return os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")


class ProgramTest(unittest.TestCase):
    """A test that runs programs, and ends them."""

    def setUp(self):
        self.programs = []

    def start_program(self, command, url, name, *numbers, **environment):
        program = Program(command, url, name, *numbers, **environment)
        self.programs.append(program)
        self.addCleanup(program.close)
        return program

    def report(self):
        """Returns how the programs have ended, and the end of their output."""
        lines = []
        for program in self.programs:
            lines += ["", f"{program.process.args} status {program.process.poll()}"]
            lines += [*program.lines()[-5:], program.errors()[-2000:]]
        return "\n".join(lines)

    def eventually(self, condition, deadline=DEADLINE):
        """Waits until the condition returns a true value, and returns this value."""
        end = time.monotonic() + deadline
        while not (found := condition()):
            if time.monotonic() > end:
                self.fail(f"not within {deadline} s{self.report()}")
            time.sleep(0.01)
        return found

    def finish(self, program):
        """Waits until the program has ended successfully, and returns its turns."""
        self.eventually(program.has_ended)
        self.assertEqual(program.process.returncode, 0, self.report())
        return program.turns()
