"""Checks of arguments before the call, because the server would also reject the other requests of the call."""

from __future__ import annotations

import math
import re
from typing import Optional, Union

from .group import Group

_WEEK = 604800


def whole(what: str, number: int, least: int, most: int = 2**32 - 1) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise ValueError(f"{what} is a whole number from {least} to {most}, not {_shown(number)}")
    return int(number)  # a member of an enumeration is sent as a number, too


def seconds(what: str, time: float, least: float = 0.001, most: float = _WEEK) -> float:
    if not least <= _number(time) <= most:
        raise ValueError(f"{what} is a time from {least} to {most} s, not {_shown(time)}")
    return _number(time)


def timeout(time: Optional[float]) -> float:
    """Returns infinity if there is no timeout. A time below 0 counts as 0."""
    if time is None:
        return math.inf
    if math.isnan(_number(time)):
        raise ValueError(f"a timeout is a time in seconds, not {_shown(time)}")
    return max(0.0, _number(time))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # a whole number that is larger than any float
        return math.inf if value > 0 else -math.inf


def name(name: str) -> str:
    if not _has_bytes(name, 512) or re.search(r"[{}\x00-\x1f\x7f]", name):
        raise ValueError(f"a name has 1 to 512 bytes, no braces, no control characters: {_shown(name)}")
    return name


def prefix(prefix: str) -> str:
    """Checks the prefix of keys and channels. Channels contain no white space."""
    if not _has_bytes(prefix, 200) or re.search(r"[{}\s\x00-\x1f\x7f]", prefix):
        raise ValueError(f"a prefix has 1 to 200 bytes, no braces, no white space: {_shown(prefix)}")
    return prefix


def share(what: str, share: int) -> int:
    return whole(what, share, 1, 1000)


def cap(what: str, cap: Optional[int], weight: int = 1) -> Optional[int]:
    return None if cap is None else whole(what, cap, weight)


def group(
    group: Union[str, Group], weight: int, default_share: int, default_cap: Optional[int]
) -> Group:
    """Returns a group for a request with this weight, with its share and its cap."""
    given = group if isinstance(group, Group) else Group(group)
    match = isinstance(given.name, str) and re.fullmatch(r"[A-Za-z0-9._-]{1,64}", given.name)
    if not match:
        what = 'a group has a name of 1 to 64 letters, digits, ".", "_" or "-"'
        raise ValueError(f"{what}, not {_shown(given.name)}")
    its_share = default_share if given.share is None else given.share
    its_cap = default_cap if given.cap is None else given.cap
    return Group(
        match[0],  # the text of a member of an enumeration
        share("a group's share", its_share),
        cap(f"a group's cap for the weight {weight}", its_cap, weight),
    )


def _has_bytes(text: object, most: int) -> bool:
    try:
        return isinstance(text, str) and 1 <= len(text.encode("utf-8")) <= most
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python does not write a whole number of thousands of digits
        return "a number with thousands of digits"
    if "://" in text:  # may contain a password
        return "a text with a URL"
    return text if len(text) <= 100 else f"{text[:100]}..."
