"""A request for a permit."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Optional, Union

from . import order
from .permit import Held


class Claim:
    """A request from acquire() until it is granted, rejected or canceled."""

    def __init__(self, request_id: str, wait_mode: str) -> None:
        self.id = request_id
        self.order = order.next()
        self.wait_mode: Union[str, int] = wait_mode  # "try", "wait" or the ticket
        self.outcome: asyncio.Future[Optional[Held]] = asyncio.get_running_loop().create_future()
        self.is_due = True  # to be sent in the next pass
        self.is_new = True  # no reply has come yet, so it must be sent before any later release
        # The time at which the last call with the reply "queued" was sent. Before the first reply "queued", this is
        # the time of the first call.
        self.asked_at: Optional[float] = None
        self.queued_at = 0  # the server's time in that reply, ms
        self.answered_at = time.monotonic()
        self.late_grants = 0  # late replies with a grant
        self.may_be_known = False  # a call that failed may have queued it

    @property
    def ticket(self) -> float:
        return self.wait_mode if isinstance(self.wait_mode, int) else math.inf
