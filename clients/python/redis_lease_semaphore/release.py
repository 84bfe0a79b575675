"""An ID that is being given back."""

from __future__ import annotations

import asyncio
from typing import Optional


class Release:
    """Until it is confirmed, or does not matter any more."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.is_repeated = False  # a try without an answer may have done it
        self.is_late = False  # a message of a grant came while the call was under way
        self.outcome: asyncio.Future[Optional[bool]] = asyncio.get_running_loop().create_future()

    @property
    def was_held(self) -> Optional[bool]:
        """Or queued. None where that is not confirmed, or never was."""
        return self.outcome.result() if self.outcome.done() else None
