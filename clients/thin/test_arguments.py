"""Tests that wrong arguments are rejected before the first call."""

from thin_test import ThinTest

LONG = b"n" * 512
NAMES = [b"", b"a{b", b"a}b", b"a\nb", b"\t", b"\x7f", LONG + b"n", b"\xe4", LONG[2:] + "ää".encode()]
LIMITS = ["-1", "abc", "", "4294967296", "18446744073709551616", "1.5"]
LEASES = ["0", "-1", "abc", "", "1e3", "604800001", "9223372036854775807", "9223372036854775808"]
TIMEOUTS = ["abc", "1.5", "2s", "9223372036854775807", "9223372036854775808"]


class Arguments(ThinTest):
    def assert_rejected(self, *arguments):
        with self.subTest(name=self.semaphore.name, arguments=arguments):
            program = self.start(*arguments)
            self.eventually(program.has_ended)
            self.assertGreater(program.process.returncode, 0)
            self.assertEqual(program.lines(), [], "a permit was held")
            self.assertNotEqual(program.errors(), "", "no error message")
            commands = self.redis.info("commandstats")
            self.assertFalse(commands.keys() & {"cmdstat_eval", "cmdstat_evalsha"}, "a script was called")

    def test_names(self):
        for name in NAMES:
            self.semaphore.name = name
            self.assert_rejected(1, 1, 0, 5_000)

    def test_numbers(self):
        for limit in LIMITS:
            self.assert_rejected(limit, 1, 0, 5_000)
        for lease in LEASES:
            self.assert_rejected(1, 1, 0, lease)
        for timeout in TIMEOUTS:
            self.assert_rejected(1, 1, 0, 5_000, timeout)

    def test_the_largest_numbers(self):
        self.finish(self.start(4294967295, 1, 0, 604_800_000, 0))
