import subprocess
import sys
import textwrap
import unittest

from redis_lease_semaphore import Semaphores

from support import DEADLINE, URL, Keys, Turns, new_name, until


class Processes(unittest.TestCase):
    def setUp(self):
        self.name = new_name()
        self.keys = Keys(URL, self.name)
        self.addCleanup(self.keys.close)
        self.client = Semaphores(URL, liveness=600)  # it would ask again after minutes
        self.client.connect()
        self.addCleanup(self.client.close)
        self.semaphore = self.client.semaphore(self.name, limit=1)

    def turns(self, **settings):
        turns = Turns(URL, self.name, **settings)
        self.addCleanup(turns.kill)
        return turns

    def queue_turns(self, **settings):
        before = self.keys.queued()
        turns = self.turns(**settings)
        until(lambda: self.keys.queued() == before + 1)
        return turns

    def test_first_come_first_served(self):
        with self.semaphore.acquire() as permit:
            crew = [self.queue_turns(hold_ms=20) for _ in range(3)]
        spans, tokens = [], [permit.fencing_token]
        for turns in crew:
            ((held, token, start), (released, end)), status = turns.finish()
            self.assertEqual((held, released, status), ("held", "released", 0), turns.errors)
            tokens.append(int(token))
            spans.append((int(start), int(end)))
        self.assertEqual(tokens, sorted(tokens))
        for (_, end), (start, _) in zip(spans, spans[1:]):
            self.assertLess(end, start)
        self.assertTrue(self.keys.are_empty())

    def test_many_turns_of_processes_keep_the_limit(self):
        with Semaphores(URL) as client:
            with client.semaphore(self.name, limit=2).acquire(weight=2):  # until all are there
                crew = [self.queue_turns(limit=2, count=10, hold_ms=5) for _ in range(4)]
        changes = []
        for turns in crew:
            lines, status = turns.finish()
            self.assertEqual((len(lines), status), (20, 0), turns.errors)
            changes += [(int(line[-1]), 1 if line[0] == "held" else -1) for line in lines]
        held = most = 0
        for _, change in sorted(changes):
            held += change
            most = max(most, held)
        self.assertEqual(most, 2)
        self.assertTrue(self.keys.are_empty())

    def test_a_killed_holder_loses_its_place_when_its_lease_ends(self):
        turns = self.turns(hold_ms=60_000, lease_ms=1000)
        self.assertEqual(turns.line()[0], "held")
        turns.kill()
        with self.semaphore.acquire(timeout=DEADLINE):
            pass

    def test_a_killed_waiter_holds_nobody_up(self):
        held = self.semaphore.acquire()
        turns = self.queue_turns()
        turns.kill()
        behind = self.queue_turns(hold_ms=0)
        held.release()
        lines, _ = behind.finish()
        self.assertEqual(lines[0][0], "held")
        until(self.keys.are_empty)

    def run_program(self, program):
        """Runs it in a process of its own, where `client` is connected."""
        head = "import os, signal, sys, redis_lease_semaphore\nclient = redis_lease_semaphore.Semaphores(sys.argv[1])\n"
        words = [sys.executable, "-c", head + "client.connect()\n" + textwrap.dedent(program), URL, self.name]
        return subprocess.run(words, capture_output=True, text=True, timeout=2 * DEADLINE)

    def test_a_forked_process_is_told_that_the_client_is_not_its_own(self):
        done = self.run_program("""
            semaphore = client.semaphore(sys.argv[2], limit=2)
            permit = semaphore.acquire()
            if os.fork() == 0:
                for call in (semaphore.try_acquire, client.connect, lambda: client.semaphore("another", 1)):
                    try:
                        call()
                    except redis_lease_semaphore.Closed:
                        print("closed", flush=True)
                print(permit.release(), client.close(), flush=True)
                os._exit(0)
            os.wait()
            print(permit.release())
            client.close()
        """)
        self.assertEqual(done.stdout.split(), ["closed"] * 3 + ["False", "None", "True"], done.stderr)

    def test_a_forked_process_is_told_so_with_asyncio_too(self):
        done = self.run_program("""
            import asyncio, redis_lease_semaphore.asyncio
            loop = asyncio.new_event_loop()
            client = redis_lease_semaphore.asyncio.Semaphores(sys.argv[1])
            loop.run_until_complete(client.connect())
            semaphore = client.semaphore(sys.argv[2], limit=2)
            permit = loop.run_until_complete(semaphore.acquire())

            async def child():
                for call in (semaphore.acquire, semaphore.try_acquire, client.connect):
                    try:
                        await call()
                    except redis_lease_semaphore.Closed:
                        print("closed", flush=True)
                print(await permit.release(), await client.close(), flush=True)

            if os.fork() == 0:
                asyncio.run(child())
                os._exit(0)
            os.wait()
            print(loop.run_until_complete(permit.release()))
            loop.run_until_complete(client.close())
        """)
        self.assertEqual(done.stdout.split(), ["closed"] * 3 + ["False", "None", "True"], done.stderr)

    def test_a_client_that_connects_after_forks_is_another_one_in_each_process(self):
        done = self.run_program("""
            client = redis_lease_semaphore.Semaphores(sys.argv[1], liveness=600)
            for _ in range(2):
                if os.fork() == 0:
                    client.connect()
                    semaphore = client.semaphore(sys.argv[2], limit=1)
                    for _ in range(50):
                        with semaphore.acquire(timeout=30):  # the other one hands it over by message
                            pass
                    client.close()
                    os._exit(0)
            print(os.wait()[1], os.wait()[1])
        """)
        self.assertEqual(done.stdout, "0 0\n", done.stderr)

    def test_the_handler_of_a_signal_may_use_the_client(self):
        done = self.run_program("""
            semaphore = client.semaphore(sys.argv[2], limit=100)
            handled = depth = 0

            def handle(*_):
                global handled, depth
                if depth == 5:
                    return  # on a busy machine they would interrupt each other without end
                depth += 1
                permit = semaphore.try_acquire()
                permit and permit.release()
                depth -= 1
                handled += 1

            signal.signal(signal.SIGALRM, handle)
            signal.setitimer(signal.ITIMER_REAL, 0.001, 0.003)
            while handled < 200:
                semaphore.acquire().release()
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, lambda *_: client.close())
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                while True:
                    semaphore.acquire().release()
            except redis_lease_semaphore.Closed:
                print("closed")
        """)
        self.assertEqual(done.stdout, "closed\n", done.stderr)
        self.assertTrue(self.keys.are_empty())


if __name__ == "__main__":
    unittest.main()
