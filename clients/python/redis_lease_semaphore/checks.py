"""Wrong arguments are found before anything is sent: one would have the calls of others refused."""

from __future__ import annotations

import re

_WEEK = 604800


def whole(what: str, number: int, least: int, most: int = 2**32 - 1) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise ValueError(f"{what} is a whole number from {least} to {most}, not {number!r}")
    return number


def seconds(what: str, time: float, least: float = 0.001, most: float = _WEEK) -> float:
    if isinstance(time, bool) or not isinstance(time, (int, float)) or not least <= time <= most:
        raise ValueError(f"{what} is a time from {least} to {most} s, not {time!r}")
    return time


def name(name: str) -> str:
    if not _has_bytes(name, 512) or re.search(r"[{}\x00-\x1f\x7f]", name):
        raise ValueError(f"a name has 1 to 512 bytes, no braces, no control characters: {name!r}")
    return name


def prefix(prefix: str) -> str:
    """It begins channels, too, and those have no blanks."""
    if not _has_bytes(prefix, 200) or re.search(r"[{}\s\x00-\x1f\x7f]", prefix):
        raise ValueError(f"a prefix has 1 to 200 bytes, no braces, no white space: {prefix!r}")
    return prefix


def _has_bytes(text: object, most: int) -> bool:
    return isinstance(text, str) and 1 <= len(text.encode("utf-8")) <= most
