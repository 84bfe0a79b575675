"""The errors of the package."""

import copy
import pickle
import unittest

from redis_lease_semaphore import SemaphoreError, errors

ARGUMENTS = {errors.PermitLost: ("P:a:1:30000:b",), errors.TooHeavy: ("ARGV[4] weighs 3", 4, 3, 2)}
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, SemaphoreError)]


class Errors(unittest.TestCase):
    def test_each_error_survives_pickle_and_copy(self):
        self.assertIn(SemaphoreError, KINDS)
        ways = [lambda error, n=n: pickle.loads(pickle.dumps(error, n)) for n in range(pickle.HIGHEST_PROTOCOL + 1)]
        for kind in KINDS:
            error = kind(*ARGUMENTS.get(kind, ("a text",)))
            error.note = "a note"
            for way in (copy.copy, copy.deepcopy, *ways):
                with self.subTest(kind.__name__):
                    again = way(error)
                    self.assertIs(type(again), kind)
                    self.assertEqual((str(again), again.args, vars(again)), (str(error), error.args, vars(error)))


if __name__ == "__main__":
    unittest.main()
