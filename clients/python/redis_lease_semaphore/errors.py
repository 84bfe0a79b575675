"""What can go wrong. Errors of Redis itself, such as a wrong password, stay redis.RedisError."""

from __future__ import annotations

import re

import redis

_TOO_HEAVY = re.compile(r"ARGV\[(\d+)\] \(id\) weighs (\d+), the limit is (\d+)")


class SemaphoreError(Exception):
    """The base of all errors of this package.

    Itself: a lease is too short for the round trip, or the server is a node of a cluster or a sentinel.
    """


class AcquireTimeout(SemaphoreError, TimeoutError):
    """No permit came in time. The request leaves the queue."""


class PermitLost(SemaphoreError):
    """The permit was held no longer: somebody else may have had it meanwhile."""

    def __init__(self, id: str) -> None:
        super().__init__(f"the lease of {id} has ended")
        self.id = id


class Unavailable(SemaphoreError):
    """An acquire has failed for `outage_tolerance`, a try or a release for two response timeouts.

    The text has the last error, as has `__cause__`.
    """


class Closed(SemaphoreError):
    """The client is closed, or not connected yet; or the permit is another process's."""


class MissingPermission(SemaphoreError):
    """The server refuses commands that the scripts need."""


class ProtocolError(SemaphoreError):
    """The scripts refused the call: a wrong key, argument or version. Nothing was changed."""


class TooHeavy(SemaphoreError):
    """The request weighs more than the limit, so it could never be granted."""

    def __init__(self, message: str, argument: int, weight: int, limit: int) -> None:
        super().__init__(message)
        self.argument, self.weight, self.limit = argument, weight, limit


def wrong_server(mode: str, details: str) -> SemaphoreError:
    """The server is there, and is none that this client can use. `mode` is HELLO's word for it."""
    what = {
        "cluster": "a node of a Redis Cluster, which this client does not support",
        "sentinel": "a sentinel: use the address of the primary",
    }[mode]
    return SemaphoreError(f"{details}: the server is {what}")


def from_reply(error: Exception) -> Exception:
    """The error that an answer of the scripts stands for; any other one as it is."""
    text = str(error)
    too_heavy = _TOO_HEAVY.search(text) if text.startswith("SEM_TOO_HEAVY ") else None
    if too_heavy:
        return TooHeavy(text, *map(int, too_heavy.groups()))
    # Newer versions of redis-py take the code off the text.
    if isinstance(error, redis.exceptions.MovedError) or text.startswith("MOVED "):
        return wrong_server("cluster", f"MOVED {text.removeprefix('MOVED ')}")
    if text.startswith("SEM_"):
        return ProtocolError(text)
    return error
