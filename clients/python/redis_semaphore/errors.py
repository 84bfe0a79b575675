"""What can go wrong. Errors of Redis itself, such as a wrong password, stay redis.RedisError."""

import re

_TOO_HEAVY = re.compile(r"ARGV\[(\d+)\] \(weight\) is (\d+), the limit is (\d+)")


class SemaphoreError(Exception):
    """The base of all errors of this package."""


class AcquireTimeout(SemaphoreError, TimeoutError):
    """No permit came in time. The request has left the queue."""


class LeaseLost(SemaphoreError):
    """The permit was held no longer: somebody else may have had it meanwhile."""

    def __init__(self, id):
        super().__init__(f"the lease of {id} has ended")
        self.id = id


class Unavailable(SemaphoreError):
    """All calls have failed for longer than the client's patience. The text has the last error."""


class Closed(SemaphoreError):
    """The client is closed, or not connected yet."""


class MissingPermission(SemaphoreError):
    """The server refuses commands that the scripts need."""


class ProtocolError(SemaphoreError):
    """The scripts refused the call: a wrong key, argument or version. Nothing was changed."""


class TooHeavy(SemaphoreError):
    """The request weighs more than the limit, so it could never be granted."""

    def __init__(self, message):
        super().__init__(message)
        self.argument, self.weight, self.limit = map(int, _TOO_HEAVY.search(message).groups())


def from_reply(error):
    """The error that an answer of the scripts stands for; any other one as it is."""
    text = str(error)
    if text.startswith("SEM_TOO_HEAVY "):
        return TooHeavy(text)
    if text.startswith("SEM_"):
        return ProtocolError(text)
    return error
