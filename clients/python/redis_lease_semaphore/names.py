"""Sockets to a host, and the resolution of its name.

asyncio resolves names in the default executor of the event loop. The program may fill this executor with its own
work, and Python closes it when the main thread ends. So this module has its own threads. They stay, because no
thread can start while Python ends.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import queue
import socket
import threading
import weakref
from typing import Any, Optional

_MOST = 4  # threads for one name: if a resolution hangs, other attempts still succeed
_Asked = Any  # queue.SimpleQueue[Optional[asyncio.Future[list[Any]]]]; None ends the threads


class Host:
    """A host and its port. Its threads end when the object is collected."""

    def __init__(self, name: str, port: int) -> None:
        self._name, self._port = name, port
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._asked: _Asked = queue.SimpleQueue()
        self._idle: collections.deque[bool] = collections.deque()  # an item for each idle thread
        self._threads = 0

    def __del__(self) -> None:
        self._asked.put(None)

    async def connect(self) -> socket.socket:
        """Returns a socket that is connected to the first address that accepts it."""
        failures = []
        for family, kind, protocol, _, address in await self._addresses():
            try:
                return await _connected(socket.socket(family, kind, protocol), address)
            except OSError as error:
                failures.append(error)
        raise failures[0] if len(failures) == 1 else OSError("; ".join(map(str, failures)))

    async def _addresses(self) -> list[Any]:
        with contextlib.suppress(socket.gaierror):  # it is a name
            return _find(self._name, self._port, socket.AI_NUMERICHOST)
        if self._pid != os.getpid():  # in a forked process, which has no copies of the threads
            self._begin()
        if not self._has_thread():
            return _find(self._name, self._port)  # the loop waits, because there is no other way
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._asked.put(answer)
        return await answer

    def _has_thread(self) -> bool:
        """Reserves a thread, or starts one. Returns whether there is any thread."""
        try:
            self._idle.pop()
        except IndexError:
            if self._threads < _MOST:
                with contextlib.suppress(RuntimeError):  # Python ends, or the process has too many threads
                    threading.Thread(
                        target=_serve,
                        args=[self._name, self._port, self._asked, self._idle],
                        name=f"redis-lease-semaphore-{self._name}",
                        daemon=True,
                    ).start()
                    self._threads += 1
        return self._threads > 0


_hosts: weakref.WeakValueDictionary[tuple[str, int], Host] = weakref.WeakValueDictionary()


def host(name: str, port: int) -> Host:
    """Returns the shared object of this host. Keep it: it keeps its threads."""
    return _hosts.setdefault((name, port), Host(name, port))


def _find(name: str, port: int, flags: int = 0) -> list[Any]:
    return socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=flags)


def _serve(name: str, port: int, asked: _Asked, idle: collections.deque[bool]) -> None:
    """Resolves the name for each question, in its own thread."""
    while _reply(name, port, asked, idle):
        pass


def _reply(name: str, port: int, asked: _Asked, idle: collections.deque[bool]) -> bool:
    answers = [asked.get()]
    found, error = [], None
    if answers[0] is not None:
        try:
            found = _find(name, port)
        except Exception as reason:
            error = reason
        with contextlib.suppress(queue.Empty):  # the same reply is for all who wait
            while True:
                answers.append(asked.get_nowait())
    idle.append(True)
    for answer in answers:
        if answer is None:
            asked.put(None)  # for the next thread
            return False
        with contextlib.suppress(RuntimeError):  # its loop was closed
            answer.get_loop().call_soon_threadsafe(_settle, answer, found, error)
    return True


def _settle(answer: asyncio.Future[list[Any]], found: list[Any], error: Optional[Exception]) -> None:
    if not answer.done():
        answer.set_exception(error) if error is not None else answer.set_result(found)


async def _connected(sock: socket.socket, address: Any) -> socket.socket:
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address)
    except BaseException:
        sock.close()
        raise
    return sock
