"""A base class for objects that cannot be copied: when a copy is collected, it would end what the original uses."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


class Unique:
    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: use the object itself")
