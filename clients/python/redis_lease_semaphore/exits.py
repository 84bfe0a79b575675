"""Informs the blocking clients when their process forks or ends."""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import logging
import os
import sys
import threading
import weakref
from typing import Any, Optional, Protocol

logger = logging.getLogger("redis_lease_semaphore")


class Client(Protocol):
    def _forked(self) -> None: ...
    def _exit(self) -> Optional[concurrent.futures.Future[None]]: ...


_clients: weakref.WeakSet[Any] = weakref.WeakSet()
_watching_pid: Optional[int] = None
_MOST = 10.0  # seconds; clients take two response timeouts, and the time to disconnect


def watch(client: Client) -> None:
    global _watching_pid
    _clients.add(client)
    if _watching_pid == os.getpid():
        return
    _watching_pid = os.getpid()
    multiprocessing: Any = sys.modules.get("multiprocessing.util")
    if multiprocessing is None:
        atexit.register(_end)
    else:
        # A child of multiprocessing does not run atexit. In its parent, this runs after the children have ended.
        multiprocessing.Finalize(None, _end, exitpriority=-100)


def _end() -> None:
    if _watching_pid != os.getpid():
        return
    if _other_threads() and threading.main_thread().is_alive():
        # A child of multiprocessing waits for its other threads later, and also for this thread.
        threading.Thread(target=_end_after_others, name="redis-lease-semaphore-end").start()
    else:
        _end_clients()


def _other_threads() -> list[threading.Thread]:
    me = threading.current_thread()
    return [thread for thread in threading.enumerate() if thread.is_alive() and not thread.daemon and thread is not me]


def _end_after_others() -> None:
    while others := _other_threads():
        others[0].join()
    _end_clients()


def _end_clients() -> None:
    is_late: Any = True
    with contextlib.suppress(KeyboardInterrupt):  # another Ctrl-C, so the user does not wait
        endings = []
        for client in list(_clients):
            with contextlib.suppress(RuntimeError):  # its loop was closed; the other clients still release
                endings.append(client._exit())
        endings = [ending for ending in endings if ending is not None]
        is_late = concurrent.futures.wait(endings, timeout=_MOST).not_done
    if is_late:
        logger.warning(
            "the program ends before Redis confirmed all releases: the remaining permits are free when their leases "
            "expire"
        )


def _forked() -> None:
    for client in list(_clients):
        client._forked()


os.register_at_fork(after_in_child=_forked)
