"""Grant messages."""

from __future__ import annotations

import re
from typing import Optional

_LONGEST = 1 << 20
_LARGEST = 2**53 - 1
_LINE = re.compile(r"([^\s]+) ([0-9]{1,16}) ([0-9]{1,16})")


def parse(data: bytes) -> Optional[tuple[str, list[tuple[str, int, int]]]]:
    """Returns the semaphore's name, and (ID, token, expiry) of each line.

    Returns None if the message has another format, because other clients may publish on the channel, too.
    """
    if len(data) > _LONGEST:
        return None
    try:
        name, *lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return None
    grants = []
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            return None
        token, end = int(match[2]), int(match[3])
        if max(token, end) > _LARGEST:
            return None
        grants.append((match[1], token, end))
    return name, grants
