"""Objects of which a copy would be a second owner: the end of the copy would end what the original has."""

from __future__ import annotations

from typing import NoReturn, SupportsIndex


class Unique:
    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: pass on the object itself in this process")
