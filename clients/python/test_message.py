import unittest

from redis_lease_semaphore import message, scripts


class Parse(unittest.TestCase):
    def test_what_scripts_send(self):
        self.assertEqual(message.parse(b"printer\na 1 2\nb 0 0"), ("printer", [("a", 1, 2), ("b", 0, 0)]))
        self.assertEqual(message.parse(b""), ("", []))

    def test_what_no_script_sends(self):
        for data in (
            b"printer\na 1",
            b"printer\na 1 2\n",
            b"printer\na 1 x",
            b"printer\na 1 -2",
            b"printer\na  1 2",
            b"printer\na 1 9007199254740992",
            b"printer\na 1 \xd9\xa1",
            b"\xff\na 1 2",
            b"printer\n" + b"a" * (1 << 20) + b" 1 2",
        ):
            self.assertIsNone(message.parse(data), data[:40])


class Replies(unittest.TestCase):
    def test_a_reply_has_one_result_for_each_request_or_one_for_all(self):
        one, two = ["declare", 1, 1, "a", "try"], ["declare", 1, 1, "a", "try", "b", "wait"]
        for script, arguments, lengths in (
            ("acquire", one, {6}),
            ("acquire", two, {6, 9}),
            ("refresh", ["a", 1], {3}),
            ("refresh", ["a", 1, "b", 1], {4}),
            ("release", ["return", "a", "b"], {3, 4}),
            ("wake", [], {3}),
        ):
            right = {length for length in range(12) if scripts.is_reply(script, arguments, [1] * length)}
            self.assertEqual(right, lengths, script)
            self.assertFalse(scripts.is_reply(script, arguments, ["1"] * max(lengths)))
        self.assertFalse(scripts.is_reply("wake", [], 1))


if __name__ == "__main__":
    unittest.main()
