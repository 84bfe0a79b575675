"""A request for a permit."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Optional, Union

from .permit import Held


class Claim:
    """From acquire() until it is granted, refused or given up."""

    def __init__(self, request_id: str, wait_mode: str) -> None:
        self.id = request_id
        self.wait_mode: Union[str, int] = wait_mode  # "try", "wait" or the ticket
        self.outcome: asyncio.Future[Optional[Held]] = asyncio.get_running_loop().create_future()
        self.is_due = True  # to be asked for in the next pass
        # When the last request was sent that was answered "queued"; before, the first of all.
        self.asked_at: Optional[float] = None
        self.queued_at = 0  # the server's time in that answer, ms
        self.answered_at = time.monotonic()
        self.late_grants = 0  # answers that granted it and came too late

    @property
    def ticket(self) -> float:
        return self.wait_mode if isinstance(self.wait_mode, int) else math.inf
