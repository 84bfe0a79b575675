"""The order of the program's calls."""

from __future__ import annotations

import itertools

next = itertools.count().__next__  # also for threads, and for __del__, which may run at any point
