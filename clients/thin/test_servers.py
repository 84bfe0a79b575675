"""Tests with a server that is unavailable, slow, busy, full or read-only."""

import time

from programs import SOURCES
from thin_test import ThinTest, soon

BUSY = "for _ = 1, 5e7 do end"  # about 0.5 s, much longer than lua-time-limit


class Servers(ThinTest):
    def failed_calls(self):
        """Returns how many calls of scripts have failed."""
        calls = self.redis.info("commandstats")["cmdstat_evalsha"]
        return calls["failed_calls"] + calls["rejected_calls"]

    def goes_on(self, program):
        lines = len(program.lines())
        self.eventually(lambda: len(program.lines()) > lines + 2)

    def test_a_permit_whose_lease_expired_before_the_reply_is_not_returned(self):
        holder = self.semaphore.hold(60_000)
        waiting = self.start_waiting(1_000)
        queued = self.last_number()
        release = self.redis.script_load(SOURCES["release"])

        # After more than half of the lease, the grant message causes another acquire. Its reply is late.
        def is_half_over():
            seconds, microseconds = self.redis.time()
            return seconds * 1_000_000 + microseconds > queued + 600_000

        self.eventually(is_half_over)
        with self.redis.pipeline(transaction=False) as pipeline:
            pipeline.evalsha(release, len(self.semaphore.keys), *self.semaphore.keys, "return", holder)
            pipeline.execute_command("CLIENT", "PAUSE", 1_500, "ALL")
            pipeline.execute()
        self.check_turn(waiting)

    @soon
    def test_a_signal_does_not_end_a_release(self):
        self.begin()
        holds = self.start_holding(1_000, 60_000)
        # The pause is longer than the timeout of a call, so the release is repeated.
        self.redis.execute_command("CLIENT", "PAUSE", 3_500, "WRITE")

        def is_paused():
            return any("b" in client["flags"] for client in self.redis.client_list())

        self.eventually(lambda: is_paused() or holds.has_ended())
        if holds.has_ended():
            return False
        self.end(holds)
        self.assert_nothing_is_left()
        return True

    def test_a_server_that_is_read_only_for_a_while(self):
        holder = self.semaphore.hold(60_000)
        waiting = self.start_waiting(60_000)
        first = self.semaphore
        self.begin()
        runs = self.start_holding(20, 60_000, count=1_000_000)
        failed = self.failed_calls()
        self.redis.execute_command("REPLICAOF", "127.0.0.1", 1)
        self.eventually(lambda: self.failed_calls() > failed + 4)
        self.redis.execute_command("REPLICAOF", "NO", "ONE")
        self.goes_on(runs)
        self.end(runs)
        first.release(holder)
        self.finish(waiting)

    @soon
    def test_a_permit_that_is_lost_while_the_server_rejects_its_release(self):
        self.begin()
        loses = self.start_holding(1_000, 60_000)
        failed = self.failed_calls()
        self.redis.delete(self.semaphore.permits)
        self.redis.config_set("min-replicas-to-write", 1)
        self.eventually(lambda: self.failed_calls() > failed or loses.has_ended())
        self.redis.config_set("min-replicas-to-write", 0)
        if loses.has_ended():
            return False
        self.assert_fails(loses, message="lost")
        return True

    def test_a_server_that_is_busy_with_a_script_for_a_while(self):
        self.redis.config_set("lua-time-limit", 50)
        runs = self.start_holding(20, 60_000, count=1_000_000)
        failed = self.failed_calls()
        self.eventually(lambda: self.redis.eval(BUSY, 0) or self.failed_calls() > failed + 4)
        self.goes_on(runs)
        self.end(runs)
        self.assert_nothing_is_left()

    def test_a_server_whose_memory_is_full(self):
        self.redis.config_set("maxmemory", 1)
        self.assert_fails(self.start(1, 1, 0, 60_000), message="OOM")

    def test_a_server_that_has_no_connection_left_for_a_while(self):
        most = self.redis.config_get("maxclients")["maxclients"]
        for database in ("", "/3"):
            with self.subTest(database):
                self.redis.config_set("maxclients", 1)
                program = self.start(1, 1, 0, 60_000, url=self.server.url + database)
                rejected = self.redis.info("stats")["rejected_connections"]
                self.eventually(lambda: self.redis.info("stats")["rejected_connections"] > rejected + 3)
                self.redis.config_set("maxclients", most)
                self.finish(program)

    def test_a_database_that_the_server_does_not_have(self):
        self.assert_fails(self.start(1, 1, 0, 60_000, url=f"{self.server.url}/99"))
        self.assertEqual(self.redis.info("keyspace"), {}, "it used another database")

    def test_a_server_that_restarts_without_data(self):
        self.semaphore.hold(60_000)
        waiting = self.start_waiting(60_000)
        self.server.kill()
        self.server.start()
        self.assertEqual(len(self.finish(waiting)), 1)

    def test_a_server_that_stays_unavailable(self):
        self.semaphore.hold(600_000)
        waits, given_up = self.start_waiting(600_000), self.start_waiting(600_000)
        limited = self.start(1, 1, 0, 600_000, 5_000)
        self.eventually(lambda: self.semaphore.queued() == 3)
        self.begin()
        holds = self.start_holding(5_000, 600_000)
        self.server.kill()
        since = time.monotonic()
        # A signal ends a wait immediately, and so does its timeout.
        given_up.process.terminate()
        self.assert_fails(given_up, 25)
        self.assert_fails(limited, 25, "(?i)connect|no reply|closed|refused|went away")
        self.assert_fails(waits, 90)
        self.assertGreaterEqual(time.monotonic() - since, 28, "it retries calls for less than 30 s")
        self.assert_fails(holds, 90)
