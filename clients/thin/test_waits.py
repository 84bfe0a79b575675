"""Tests that permits are granted in time, and released."""

import uuid

from thin_test import ThinTest, channel_of, client_of, soon


class Waits(ThinTest):
    def test_two_processes_take_turns(self):
        self.check_turns(30, *[self.start(1, 15, 20, 60_000) for _ in range(2)])

    def test_one_call_acquires_and_declares_and_one_releases(self):
        self.semaphore.release(self.semaphore.hold())
        with self.calls_of_scripts() as calls:
            program = self.start(2, 1, 0, 30_000)
            self.finish(program)
        self.assertEqual(len(calls), 2, calls)
        self.assertIn("limit", program.errors(), "another limit is not reported")
        program = self.start(2, 1, 0, 30_000)
        self.finish(program)
        self.assertEqual(program.errors(), "", "it warns about its own limit")

    def call_for_thousands(self, client, lease_ms, place, *declaration):
        """Sends more requests than one call removes or skips."""
        for _ in range(3):
            ids = [f"{client}:1:{lease_ms}:{uuid.uuid4().hex}" for _ in range(1000)]
            self.semaphore.call("acquire", *declaration, *(word for id in ids for word in (id, place)))

    def test_thousands_of_expired_leases(self):
        self.call_for_thousands("N:dead", 1_500, "try", "declare", 3000, 15_000)
        self.semaphore.call("limit", "declare", 1)
        self.eventually(lambda: self.semaphore.inspect()[1] == 0)
        program = self.start(1, 1, 0, 30_000)
        self.finish(program)
        self.assertFalse(self.redis.exists(self.semaphore.clients), "it queued, though all leases had expired")
        self.check_turn(program)

    @soon
    def test_the_permit_of_a_killed_process_is_free_after_its_lease(self):
        self.begin()
        killed = self.start_holding(60_000, 3_000)
        waiting = self.start_waiting(60_000)
        killed.kill()
        ticket = self.last_number()
        # A heartbeat, 5 s after the first call, would return the permit, too.
        return self.check_turn(waiting) - ticket < 4_500_000

    @soon
    def test_thousands_of_dead_waiters(self):
        self.begin()
        holder = self.semaphore.hold(600_000)
        self.call_for_thousands("P:nobody-listens", 600_000, "wait", "declare_if_unset", 1, 600_000)
        waiting = self.start_waiting(60_000)
        ticket = self.last_number()
        request = self.redis.zrange(self.semaphore.queue, -1, -1)[0]
        self.semaphore.release(holder)
        # After this message of its removal, the client calls acquire immediately. Its heartbeat would be 5 s later.
        self.redis.publish(channel_of(request), f"{self.semaphore.name}\n{request} 0 0")
        return self.check_turn(waiting) - ticket < 4_000_000

    def test_a_process_that_is_ended_while_it_waits_leaves_the_queue(self):
        holder = self.semaphore.hold()
        self.end(self.start_waiting())
        self.assertEqual(self.semaphore.queued(), 0, self.report())
        self.semaphore.release(holder)
        self.assert_nothing_is_left()

    def test_a_process_that_is_ended_while_it_holds_releases_its_permit(self):
        self.end(self.start_holding(60_000, 30_000))
        self.assert_nothing_is_left()

    def test_a_limit_of_0(self):
        program = self.start(0, 1, 0, 5_000, 300)
        self.eventually(program.has_ended)
        self.assertNotEqual(program.process.returncode, 0, "it got a permit")
        self.assert_nothing_is_left()

    @soon
    def test_a_connection_that_is_closed_while_waiting(self):
        self.begin()
        holder = self.semaphore.hold()
        waiting = self.start_waiting()
        request = self.first_in_queue()

        def alive_until():
            return self.redis.zscore(self.semaphore.clients, client_of(request))

        before = alive_until()
        self.assertGreater(self.redis.client_kill_filter(_type="pubsub"), 0)
        self.eventually(lambda: alive_until() > before)
        after = alive_until()
        self.eventually(lambda: self.redis.pubsub_numsub(channel_of(request))[0][1] == 1)
        self.semaphore.release(holder)
        self.check_turn(waiting)
        return after - before < 4_000  # It does not wait for the heartbeat, after 5 s.
