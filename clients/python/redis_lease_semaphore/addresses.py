"""The server's address: what is read from a URL, and how errors name it.

No secret of a URL is in any error.
"""

from __future__ import annotations

import inspect
import re
import urllib.parse
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

_ENCODE = "write the characters / ? # @ : % of a user name or password as %2F %3F %23 %40 %3A %25"


def connections(url: str, response_timeout: float, options: dict[str, Any]) -> redis.asyncio.Redis:
    """What redis.asyncio.Redis.from_url makes of it."""
    if not isinstance(url, str):
        raise TypeError(f"a URL is needed, not {type(url).__name__}")
    _check(url)
    defaults: dict[str, Any] = {
        # Calls are repeated here: renewals until the deadline, waits until they are given up.
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": response_timeout,
        **_without_denied_commands(options),
    }
    try:
        found: redis.asyncio.Redis = redis.asyncio.Redis.from_url(url, **{**defaults, **options})
    except ValueError as error:
        if isinstance(error, UnicodeError) or "://" not in str(error):
            raise ValueError(f"the URL cannot be read: {_ENCODE}") from None
        raise  # it lists the schemes
    pool: Any = found.connection_pool
    if pool.max_connections < 2:
        raise ValueError("max_connections is at least 2: one for calls, and one for messages")
    pool.connection_kwargs.update(  # whatever the URL says
        decode_responses=False,  # messages of strangers need not be text
        socket_timeout=response_timeout,
    )
    pool.connection_class(**pool.connection_kwargs)  # an unknown option is an error now
    return found


def _check(url: str) -> None:
    """redis-py takes what is left of a password that is not encoded for a port, path or nothing."""
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        raise ValueError(f"the URL cannot be read: {_ENCODE}") from None
    queries = [query for query in parts.query.split("&") if query]
    if "@" in parts.path or parts.fragment or not all("=" in query for query in queries):
        hint = "; for a socket write unix://USER:PASSWORD@/PATH" if parts.scheme == "unix" else ""
        raise ValueError(f"the URL has a part that no server has: {_ENCODE}{hint}")
    if parts.scheme in ("redis", "rediss") and not re.fullmatch(r"/?|/\d+", parts.path):
        raise ValueError("what stands behind the address in the URL is the number of a database")


def _without_denied_commands(options: dict[str, Any]) -> dict[str, Any]:
    """Options for a handshake that needs no rights: nothing but HELLO, AUTH and SELECT is sent.

    The documented users may not do more, and each command that is denied is in the server's ACL LOG.
    """
    base = getattr(redis.asyncio.connection, "AbstractConnection", redis.asyncio.Connection)
    known = inspect.signature(base.__init__).parameters
    quiet: dict[str, Any] = {"protocol": 2}  # with 3 redis-py sends CLIENT MAINT_NOTIFICATIONS
    if not options.keys() & {"driver_info", "lib_name", "lib_version"}:
        # No CLIENT SETINFO. Newer versions of redis-py warn of the old names.
        quiet.update({"driver_info": None} if "driver_info" in known else {"lib_name": None, "lib_version": None})
    return {option: value for option, value in quiet.items() if option in known}


def of(connections: redis.asyncio.Redis) -> str:
    options = connections.connection_pool.connection_kwargs
    return str(options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")


def named(error: Exception, connections: redis.asyncio.Redis, step: str) -> Exception:
    """The error, which also says where and at which step it came about."""
    where = f"{of(connections)}, {step}"
    if str(error).startswith(of(connections)):
        return error
    user = connections.connection_pool.connection_kwargs.get("username")
    if user and step == "connecting":
        where += f" as user {user}"
    if isinstance(error, redis.RedisError):
        error.args = (f"{where}: {error}",)
    else:
        error = redis.ConnectionError(f"{where}: {error}")
    return error
