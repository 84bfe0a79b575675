"""Pauses between attempts: longer each time, and random, so that clients do not retry at the same time."""

from __future__ import annotations

import random


class Pauses:
    def __init__(self) -> None:
        self._last = 0.0

    def next(self) -> float:
        """Returns the next pause in seconds."""
        self._last = min(max(0.005, 2 * self._last), 0.25)
        return self._last * random.uniform(0.5, 1)

    def reset(self) -> None:
        self._last = 0.0
