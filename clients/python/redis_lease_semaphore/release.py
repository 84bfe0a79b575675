"""The release of an ID."""

from __future__ import annotations

import asyncio
from typing import Optional


class Release:
    """A release, until Redis confirms it or the permit has expired."""

    def __init__(self, until: float, order: int) -> None:
        self.until = until
        self.order = order  # among the program's calls
        self.is_new = True  # it must be sent before any later request
        self.is_repeated = False  # an attempt without a reply may have released it
        self.is_late = False  # a grant message arrived during the call
        self.outcome: asyncio.Future[Optional[bool]] = asyncio.get_running_loop().create_future()

    @property
    def was_held(self) -> Optional[bool]:
        """Whether the ID was held or queued. None if Redis has not confirmed it."""
        return self.outcome.result() if self.outcome.done() else None
