"""The errors of this package. An error of redis-py is the `__cause__` of such an error."""

from __future__ import annotations

import copy
import copyreg
import re
from typing import Any, TypeVar

import redis

NOT_CONNECTED = "the client is not connected: call connect() first, or use the client in a `with` block"
_TOO_HEAVY = re.compile(r"ARGV\[(\d+)\] \(id\) weighs (\d+), the limit is (\d+)")
_NO_ANSWER = (redis.ConnectionError, redis.TimeoutError, OSError)
# redis-py removes the code from the text of these errors. It keeps the code of other errors, and any code after the
# prefix that Redis 6.2 adds.
_OF_REPLICA = (redis.exceptions.ReadOnlyError, redis.exceptions.MasterDownError)
_CANNOT_NOW = (redis.exceptions.TryAgainError, redis.exceptions.ClusterDownError)
_REPLICA = re.compile(r"(^|-)(MASTERDOWN|READONLY)\b")
_PASSING = re.compile(r"(^|-)(LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|NOREPLICAS)\b")
_NO_COMMAND = re.compile(r"NOPERM|no permissions|the user executing the script can't|unknown.* command", re.IGNORECASE)


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
        super().__init__(f"the permit {id} is lost: its lease or max_hold ended, the client was closed, or the server "
                         "does not know it")
        self.id = id


class Unavailable(SemaphoreError):
    """A wait has failed for `outage_tolerance`, another call for two response timeouts, or `connect` at once.

    The server cannot be reached, or cannot serve the call now, for example because it is a replica. The text and
    `__cause__` contain the last error.
    """


class Closed(SemaphoreError):
    """The client is closed or not connected, the permit belongs to another process, or the program ends."""


class MissingPermission(SemaphoreError):
    """The user lacks the right to a command or a channel, or the server does not know a command."""


class Rejected(SemaphoreError):
    """The server rejected the call, for example because its memory is full or a key has another type.

    An error of the scripts, which begins with SEM_, means that the call changed nothing. `connect` raises this error
    for a wrong password, too.
    """


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


def _original(error: Exception) -> str:
    """Returns the text of the server. `addresses.named` adds the address and the step to the text of an error."""
    return getattr(error, "original", str(error))


def is_of_replica(error: Exception) -> bool:
    return isinstance(error, _OF_REPLICA) or _REPLICA.search(_original(error)) is not None


def lacks_permission(error: Exception) -> bool:
    return isinstance(error, redis.exceptions.NoPermissionError) or _NO_COMMAND.search(_original(error)) is not None


def _is_passing(error: Exception) -> bool:
    """Returns whether to retry a call after this error: no reply, or a temporary state of the server."""
    if isinstance(error, redis.AuthenticationError):  # for redis-py, this is a ConnectionError
        return False
    return isinstance(error, _NO_ANSWER + _CANNOT_NOW) or _PASSING.search(_original(error)) is not None


def has_changed_nothing(error: SemaphoreError) -> bool:
    """Returns whether the server rejected a call before the script of the call changed anything."""
    reply = error.__cause__
    if not isinstance(reply, (redis.ResponseError, redis.AuthenticationError)):
        return False
    # The text of an error within a script names the script.
    return _original(reply).startswith("SEM_") or "script" not in _original(reply)


def from_redis(error: Exception, address: str, step: str) -> SemaphoreError:
    """Returns this package's error for an error of redis-py. Its text has the address and the step."""
    text = str(error)
    where = "" if text.startswith(address) else f"{address}, {step}: "
    too_heavy = _TOO_HEAVY.search(text) if text.startswith("SEM_TOO_HEAVY ") else None
    if too_heavy:
        return TooHeavy(where + text, *map(int, too_heavy.groups()))
    if text.startswith("SEM_"):
        return Rejected(where + text)
    if lacks_permission(error):
        return MissingPermission(where + text)
    # Newer versions of redis-py remove the code from the text.
    if isinstance(error, redis.exceptions.MovedError) or text.startswith("MOVED "):
        return wrong_server("cluster", f"{where}MOVED {text.removeprefix('MOVED ')}")
    if is_of_replica(error):
        return Unavailable(f"{where}the server is a replica: connect to the primary ({text})")
    return (Unavailable if _is_passing(error) else Rejected)(where + text)


_E = TypeVar("_E", bound=SemaphoreError)


def of_semaphore(name: str, error: _E) -> _E:
    """Returns the error with the name of the semaphore in its text."""
    named = copy.copy(error)
    named.args, named.__cause__ = (f"semaphore {name}: {error}",), error.__cause__
    return named
