"""Tests which messages a waiting client believes."""

import pathlib
import tempfile
import uuid

from thin_test import ThinTest, channel_of, client_of, soon

LONG = "n" * 510
NAMES = ["a  b ", "it's", 'a"b', "$(exit)`exit`$HOME", "a\\nb\\", "*", "@", "]", "-n", "zähler", "🎫", "a\ufffdb"]
MOST = 2**53 - 1


class Messages(ThinTest):
    def publish(self, request, message):
        self.redis.publish(channel_of(request), message)

    @soon
    def test_a_lost_grant_message_only_costs_time_and_forged_messages_have_no_effect(self):
        self.begin()
        name, holder = self.semaphore.name, self.semaphore.hold()
        waiting = self.start_waiting()
        request = self.first_in_queue()
        now = self.redis.time()[0] * 1000
        self.publish(request, "")
        self.publish(request, b"\xff")
        self.publish(request, name)
        self.publish(request, f"{name}\n{request} 4 {MOST}\nand more")
        self.publish(request, f"another\n{request} 5 {MOST}")
        self.publish(request, f"{name}\n{request} 6 {now}")  # granted long ago
        self.semaphore.call("refresh", holder, 1)

        # An acquire returns the permit in its reply, so no message is sent.
        def acquire():
            code, token = self.semaphore.call("acquire", "declare_if_unset", 1, 15_000, request, "wait")[3:5]
            return code == 1 and token

        granted = self.eventually(acquire)
        # Otherwise a forged message granted it, or the heartbeat was just due.
        return self.check_turn(waiting) > granted

    def test_a_process_releases_a_permit_that_it_does_not_wait_for(self):
        holder = self.semaphore.hold(600_000)
        waiting = self.start_waiting(600_000)
        unwanted = f"P:{client_of(self.first_in_queue())}:1:600000:{uuid.uuid4().hex}"
        self.semaphore.call("acquire", "declare_if_unset", 1, 15_000, unwanted, "+3600000")
        self.assertEqual(self.first_in_queue(), unwanted)
        self.semaphore.release(holder)
        self.check_turn(waiting)

    def test_invalid_ids_that_begin_like_its_own_are_neither_run_nor_released(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = pathlib.Path(folder.name, "run")
        run, nonce = f"$(>{file})", uuid.uuid4().hex
        holder = self.semaphore.hold()
        waiting = self.start_waiting()
        request = self.first_in_queue()
        invalid = (
            f":{run}",
            f":1:30000:{run}",
            f"\ta[{run}]",
            ":1:30000:",
            f":1:30000:{nonce}.b",
            f":0:30000:{nonce}",
            f":01:30000:{nonce}",
            f":4294967296:30000:{nonce}",
            f":1:0:{nonce}",
            f":1:604800001:{nonce}",
            f":1:30000:{nonce[:15]}",
            f":1:30000:{nonce}{nonce}b",
            f":1:30000:{nonce}:b",
        )
        self.semaphore.call("release", "return", f"N:unknown:1:1000:{nonce}")  # The server knows the script now.
        with self.calls_of_scripts() as calls:
            for end in invalid:
                self.publish(request, f"{self.semaphore.name}\nP:{client_of(request)}{end} 1 {MOST}")
            self.semaphore.release(holder)
            self.finish(waiting)
        self.assertFalse(file.exists(), "a message was run")
        self.assertEqual([call.partition(" return ")[2] for call in calls if " return " in call], [request])
        self.check_turn(waiting)

    @soon
    def grant_by_message(self, name, locale):
        self.begin(name)
        holder = self.semaphore.hold()
        waiting = self.start_waiting(LC_ALL=locale)
        self.semaphore.release(holder)
        granted = self.last_number()
        # A heartbeat would return the permit, too, but with a newer token.
        return self.check_turn(waiting) == granted

    def test_odd_names_in_any_locale(self):
        for locale in ("C", "C.UTF-8"):
            for name in (*NAMES, f"{LONG}ä"):
                with self.subTest(name=name, locale=locale):
                    self.grant_by_message(name, locale)
