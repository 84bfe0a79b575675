"""The errors of this package. Errors of Redis itself, such as a wrong password, remain redis.RedisError."""

from __future__ import annotations

import copyreg
import re
from typing import Any

import redis

NOT_CONNECTED = "the client is not connected: call connect() first, or use the client in a `with` block"
_TOO_HEAVY = re.compile(r"ARGV\[(\d+)\] \(id\) weighs (\d+), the limit is (\d+)")


class SemaphoreError(Exception):
    """The base class of all errors of this package.

    An instance of this class itself has one of two meanings: a lease is too short for the round trip, or the
    server is not supported, because it is a node of a cluster, or a sentinel.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Makes pickle and copy keep the text and the attributes, without a call of __init__."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class AcquireTimeout(SemaphoreError, TimeoutError):
    """No permit was granted in time. The request leaves the queue."""


class PermitLost(SemaphoreError):
    """The permit was lost, so another client may hold it."""

    def __init__(self, id: str) -> None:
        super().__init__(f"the permit {id} is lost: its lease expired, or the server does not know it")
        self.id = id


class Unavailable(SemaphoreError):
    """A wait has failed for `outage_tolerance`, or another call has failed for two response timeouts.

    The text and `__cause__` contain the last error.
    """


class Closed(SemaphoreError):
    """The client is closed or not connected, the permit belongs to another process, or the program ends."""


class MissingPermission(SemaphoreError):
    """The user lacks the right to commands that the scripts need."""


class Rejected(SemaphoreError):
    """The scripts rejected the call because of a wrong key, argument or version. It changed nothing."""


class TooHeavy(SemaphoreError):
    """The request exceeds the limit, so it can never be granted."""

    def __init__(self, message: str, argument: int, weight: int, limit: int) -> None:
        super().__init__(message)
        self.argument, self.weight, self.limit = argument, weight, limit


def wrong_server(mode: str, details: str) -> SemaphoreError:
    """Returns the error for a server that this client does not support. `mode` is from the reply to HELLO."""
    what = {
        "cluster": "a node of a Redis Cluster, which this client does not support",
        "sentinel": "a sentinel: use the address of the primary",
    }[mode]
    return SemaphoreError(f"{details}: the server is {what}")


def from_reply(error: Exception) -> Exception:
    """Returns the error that an error reply of the scripts means, or the error itself."""
    text = str(error)
    too_heavy = _TOO_HEAVY.search(text) if text.startswith("SEM_TOO_HEAVY ") else None
    if too_heavy:
        return TooHeavy(text, *map(int, too_heavy.groups()))
    # Newer versions of redis-py remove the code from the text.
    if isinstance(error, redis.exceptions.MovedError) or text.startswith("MOVED "):
        return wrong_server("cluster", f"MOVED {text.removeprefix('MOVED ')}")
    if text.startswith("SEM_"):
        return Rejected(text)
    return error
