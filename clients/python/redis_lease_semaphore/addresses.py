"""The server's address: its parts in a URL, and its name in errors.

No error contains a secret of a URL.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import socket
import ssl
import urllib.parse
from typing import Any, Optional

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from . import names

_ENCODE = "write the characters / ? # @ : % of a user name or password as %2F %3F %23 %40 %3A %25"
_ARGUMENTS = re.compile(r",? with args beginning with.*", re.IGNORECASE | re.DOTALL)
_SHORTEST_SECRET = 4  # a shorter password is part of many words, such as the codes of errors
_NO_PASSWORD = re.compile("NOAUTH|Authentication required|client already authenticated|unauthenticated (multi)?bulk")


def connections(url: str, response_timeout: float, options: dict[str, Any]) -> redis.asyncio.Redis:
    """Returns the result of redis.asyncio.Redis.from_url."""
    if not isinstance(url, str):
        raise TypeError(f"a URL is needed, not {type(url).__name__}")
    _check(url)
    _check_pool(options.get("max_connections", 2))
    defaults: dict[str, Any] = {
        # This package retries calls itself: refreshes until the deadline, waits for `outage_tolerance`.
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": response_timeout,
        **_without_denied_commands(options),
    }
    try:
        found: redis.asyncio.Redis = redis.asyncio.Redis.from_url(url, **{**defaults, **options})
    except ValueError as error:
        if isinstance(error, UnicodeError) or not re.search("://|invalid value for", str(error), re.IGNORECASE):
            raise ValueError(f"the URL cannot be read: {_ENCODE}") from None
        raise  # this error lists the schemes, or names a parameter
    pool: Any = found.connection_pool
    if "socket_timeout" in pool.connection_kwargs:
        raise ValueError("use response_timeout instead of socket_timeout: it is an argument of SemaphoreClient")
    encoding = pool.connection_kwargs.get("encoding", "utf-8")
    if encoding.lower() not in ("utf-8", "utf8"):
        raise ValueError(f"the encoding {encoding} is not supported: names are always sent as UTF-8")
    _check_options({"max_connections": pool.max_connections, **pool.connection_kwargs}, options)
    _check_pool(pool.max_connections)
    _check_files(pool.connection_kwargs)
    pool.connection_kwargs.update(  # these options override the URL
        decode_responses=False,  # messages of other clients need not be text
        socket_timeout=response_timeout,
    )
    if issubclass(pool.connection_class, redis.asyncio.SSLConnection):
        # Before version 6, redis-py accepts the certificate of any host by default.
        is_checked = pool.connection_kwargs.get("ssl_cert_reqs") not in ("none", ssl.CERT_NONE)
        pool.connection_kwargs.setdefault("ssl_check_hostname", is_checked)
    pool.connection_class = _discreet(pool.connection_class)
    made = pool.connection_class(**pool.connection_kwargs)  # an unknown option is an error now
    if not hasattr(made, "path"):
        pool.connection_class._at = names.host(made.host, made.port)
    return found


def _discreet(connection_class: Any) -> Any:
    """Returns a class of connections that resolve names themselves, and remove passwords from all texts of a server.

    A server that does not know AUTH or HELLO returns their arguments, which include the password. All replies pass
    through this method, so no error, cause or log contains them.
    """

    class Connection(connection_class):  # type: ignore[misc]
        socket_timeout: Optional[float]
        _password = ""
        _at: Optional[names.Host] = None  # None: a Unix socket

        async def _connect(self) -> None:
            """Replaces the method of redis-py, which resolves names in the default executor of the event loop."""
            if self._at is None:
                return await super()._connect()  # type: ignore[no-any-return]
            opening = asyncio.ensure_future(self._open(self._at))
            opening.add_done_callback(lambda task: task.cancelled() or task.exception())  # it counts as seen
            try:
                await asyncio.wait([opening], timeout=self.socket_connect_timeout)
            finally:
                is_late = opening.cancel()
            if is_late:
                raise asyncio.TimeoutError
            opening.result()

        async def _open(self, host: names.Host) -> None:
            sock = await host.connect()
            try:
                if self.socket_keepalive:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                    for option, value in (self.socket_keepalive_options or {}).items():
                        sock.setsockopt(socket.IPPROTO_TCP, option, value)
            except BaseException:
                sock.close()
                raise
            tls = getattr(self, "ssl_context", None)
            options = {"ssl": tls.get(), "server_hostname": self.host} if tls else {}
            self._reader, self._writer = await asyncio.open_connection(sock=sock, **options)

        async def connect(self, *args: Any, **options: Any) -> None:
            try:
                await super().connect(*args, **options)
            except redis.ConnectionError as error:
                if isinstance(error.__cause__, redis.RedisError):
                    raise error.__cause__ from None  # the server's reply, which redis-py hides if it uses a socket
                raise

        async def send_command(self, *args: Any, **options: Any) -> Any:
            if "AUTH" in args:
                # A user without a password may be a password without its colon.
                self._password = text(args[-1]) or text(args[-2])
            return await super().send_command(*args, **options)

        async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            """Sends without the time limit of redis-py, which can swallow a cancellation before Python 3.12.

            The time of each reply stays limited.
            """
            if not self.is_connected:
                await self.connect()
            if check_health:
                await self.check_health()
            limit, self.socket_timeout = self.socket_timeout, None
            try:
                await super().send_packed_command(command, check_health=False)
            finally:
                self.socket_timeout = limit

        async def read_response(self, *args: Any, **options: Any) -> Any:
            try:
                return await super().read_response(*args, **options)
            except (redis.RedisError, OSError, asyncio.TimeoutError) as error:
                error.args = tuple(shown(arg, self._password) if isinstance(arg, str) else arg for arg in error.args)
                raise
            except Exception as error:  # from the parser of redis-py
                if type(error) is RuntimeError:  # the event loop was closed
                    raise
                raise not_redis(shown(str(error), self._password)) from None

    return Connection


def text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def shown(text: str, password: str = "") -> str:
    """Returns a server's text without the arguments of a command and the password, with at most 500 characters."""
    text = _ARGUMENTS.sub("", text)
    if len(password) >= _SHORTEST_SECRET:
        text = re.sub("".join(map(_escaped, password)), "***", text, flags=re.IGNORECASE)
    if _NO_PASSWORD.search(text):
        text += ": the server requires a password, in the URL (redis://:PASSWORD@HOST) or in the option password"
    return text if len(text) <= 500 else f"{text[:500]}..."


def _escaped(character: str) -> str:
    """Returns a pattern for a character, also if the text has it as %XX or behind backslashes."""
    codes = "".join(rf"(?:%|\\+x){byte:02x}" for byte in character.encode("utf-8", "replace"))
    return rf"(?:\\*{re.escape(character)}|{codes})"


def not_redis(what: str) -> redis.InvalidResponse:
    """Returns the error for a reply that no Redis server sends."""
    return redis.InvalidResponse(f"the reply is not of a Redis server: {what}")


def _check(url: str) -> None:
    """Rejects a wrong address, and an unencoded password, a part of which redis-py would ignore or use elsewhere."""
    if re.search(r"\s", url):
        raise ValueError("the URL contains white space: remove it (in a password, write a space as %20)")
    unreadable = ValueError(f"the URL cannot be read: {_ENCODE}")
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        raise unreadable from None
    queries = [query for query in parts.query.split("&") if query]
    if "@" in parts.path or parts.fragment or not all("=" in query for query in queries):
        hint = "; for a socket write unix://USER:PASSWORD@/PATH" if parts.scheme == "unix" else ""
        raise ValueError(f"the URL has a part that no server has: {_ENCODE}{hint}")
    host = parts.netloc.rpartition("@")[2]
    if "," in host:
        raise ValueError("the URL has several addresses, which are not supported: use the address of one server")
    if host.count(":") > 1 and "[" not in host:
        brackets = "write an IPv6 address in brackets, as in redis://[::1]:6379"
        raise ValueError(f"the URL cannot be read: {brackets}, and {_ENCODE}")
    try:
        port = parts.port
    except ValueError as error:
        if "out of range" not in str(error):
            raise unreadable from None
        port = 0
    if port == 0:
        raise ValueError("the port of the URL is out of range: a port is a number from 1 to 65535")
    if parts.scheme in ("redis", "rediss") and not re.fullmatch(r"/?|/\d+", parts.path):
        raise ValueError("the path of the URL must be the number of a database")
    names = [name for name, _ in urllib.parse.parse_qsl(parts.query)]
    in_front = {
        "username": parts.username, "password": parts.password, "host": parts.hostname, "port": port,
        "path" if parts.scheme == "unix" else "db": parts.path.strip("/"),
    }
    names += [name for name, value in in_front.items() if value]
    if len(set(names)) < len(names):
        raise ValueError("the URL sets an option twice, such as the database: redis-py would ignore one of them")


def _check_options(of_url: dict[str, Any], options: dict[str, Any]) -> None:
    """Rejects an option that differs from the URL, because redis-py would ignore the option."""
    for name, option in options.items():
        if name in of_url and of_url[name] != option:
            raise ValueError(f"the URL and the option {name} differ: omit one of them")


def _check_files(options: dict[str, Any]) -> None:
    """Rejects a missing file, because the error of a connection would not name it."""
    for name in ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"):
        path = options.get(name)
        if path and not os.access(path, os.R_OK):
            raise ValueError(f"the option {name} names a file that cannot be read: {path}")


def _check_pool(max_connections: Any) -> None:
    if not isinstance(max_connections, int) or max_connections < 2:
        raise ValueError("max_connections is at least 2: one for calls, and one for messages")


def _without_denied_commands(options: dict[str, Any]) -> dict[str, Any]:
    """Returns options for a handshake that sends only HELLO, AUTH and SELECT.

    The documented users lack the rights to other commands, and each denied command appears in the server's ACL LOG.
    """
    base = getattr(redis.asyncio.connection, "AbstractConnection", redis.asyncio.Connection)
    known = inspect.signature(base.__init__).parameters
    quiet: dict[str, Any] = {"protocol": 2}  # with 3 redis-py sends CLIENT MAINT_NOTIFICATIONS
    if not options.keys() & {"driver_info", "lib_name", "lib_version"}:
        # This prevents CLIENT SETINFO. Newer versions of redis-py warn about the old names.
        quiet.update({"driver_info": None} if "driver_info" in known else {"lib_name": None, "lib_version": None})
    return {option: value for option, value in quiet.items() if option in known}


def of(connections: redis.asyncio.Redis) -> str:
    options = connections.connection_pool.connection_kwargs
    return str(options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}")


def named(error: Exception, connections: redis.asyncio.Redis, step: str) -> Exception:
    """Returns the error with the address and the step in its text."""
    where = f"{of(connections)}, {step}"
    if str(error).startswith(of(connections)):
        return error
    options = connections.connection_pool.connection_kwargs
    user = options.get("username")
    if user and step == "connecting":
        # A user without a password may be a password without its colon.
        where += f" as user {user}" if options.get("password") else " as the user of the URL without a password"
    reason = error.__context__
    if isinstance(reason, ssl.SSLError) and str(reason) not in str(error):  # redis-py 4 does not name the reason
        where += f": {reason}"
    if isinstance(error, (LookupError, TypeError)):  # redis-py expects a reply of another type
        error = not_redis(str(error))
    if str(error) == "Connection not ready":  # the pool of redis-py discards the reason
        where += ": the server sent an error before the first command, for example because of maxclients"
    if isinstance(error, redis.RedisError):
        error.original = str(error)  # type: ignore[attr-defined]  # errors.py reads it
        error.args = (f"{where}: {error}",)
    else:
        error = redis.ConnectionError(f"{where}: {error}")
    return error
