import subprocess
import sys
import textwrap
import unittest

from redis_lease_semaphore import SemaphoreClient

from support import run_program, DEADLINE, URL, Keys, Turns, new_name, until


class Processes(unittest.TestCase):
    def setUp(self):
        self.name = new_name()
        self.keys = Keys(URL, self.name)
        self.addCleanup(self.keys.close)
        self.client = SemaphoreClient(URL, heartbeat_timeout=600)  # heartbeats are due after minutes
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
        with SemaphoreClient(URL) as client:
            with client.semaphore(self.name, limit=2).acquire(weight=2):  # held until all processes have started
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

    def test_the_handler_of_a_signal_may_use_the_client(self):
        done = run_program("""
            client = redis_lease_semaphore.SemaphoreClient(sys.argv[1])
            client.connect()
            semaphore = client.semaphore(sys.argv[2], limit=100)
            handled = depth = 0

            def handle(*_):
                global handled, depth
                if depth == 5:
                    return  # on a busy machine, the handlers would interrupt each other forever
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
        """, self.name)
        self.assertEqual(done.stdout, "closed\n", done.stderr)
        self.assertTrue(self.keys.are_empty())

    def test_the_handler_of_a_signal_may_close_the_client_while_a_call_is_handed_over(self):
        for moment in ("before the check", "after the check", "at the end"):
            with self.subTest(moment):
                done = run_program("""
                    moment = sys.argv[3]
                    client = redis_lease_semaphore.SemaphoreClient(sys.argv[1])
                    client.connect()
                    semaphore = client.semaphore(sys.argv[2], limit=1)
                    loop = client._loop
                    call_soon_threadsafe = loop.call_soon_threadsafe

                    def interrupted(callback):
                        loop.call_soon_threadsafe = call_soon_threadsafe
                        if moment == "at the end":
                            call_soon_threadsafe(callback)
                        signal.raise_signal(signal.SIGALRM)
                        if moment == "before the check":
                            call_soon_threadsafe(callback)
                        # After its check, a closed loop accepts a callback and never calls it.

                    signal.signal(signal.SIGALRM, lambda *_: client.close())
                    loop.call_soon_threadsafe = interrupted
                    with contextlib.suppress(redis_lease_semaphore.Closed):
                        semaphore.acquire().release()
                    while threading.active_count() > 1:
                        time.sleep(0.01)
                    print("closed")
                """, self.name, moment)
                self.assertEqual(done.stdout, "closed\n", done.stderr)
                self.assertTrue(self.keys.are_empty())


if __name__ == "__main__":
    unittest.main()
