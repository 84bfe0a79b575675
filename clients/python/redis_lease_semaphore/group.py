"""Groups of requests."""

from __future__ import annotations

import dataclasses
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Group:
    """A group of requests, such as the requests of one tenant. `acquire(group="tenant-7")` uses the defaults.

    `name` is 1 to 64 letters, digits, ".", "_" or "-". If several groups wait, they are granted weight in proportion
    to `share` (1 to 1000, default: the semaphore's `group_share`). A group never holds more weight than `cap` (at
    least the weight of the request, default: the semaphore's `group_cap`). While it is at its cap, its requests delay
    no other group. All requests without a group form one more group, with a share of 1 and no cap.

    Shares divide grants, not time. Derive the name from an authenticated identity: a caller that may choose names
    can invent groups, and each of them has a share.
    """

    name: str
    share: Optional[int] = None
    cap: Optional[int] = None
