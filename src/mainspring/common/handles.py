"""Base classes of handles in the public API: reserved names raise ``NotBuilt``, and handles cannot be pickled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from mainspring.errors import NotBuilt, UseError, did_you_mean


class Reserved:
    """Refuses the names in ``LATER`` and their async versions; an unknown name gets a suggestion."""

    __slots__ = ()

    LATER: ClassVar[frozenset[str]] = frozenset()

    if not TYPE_CHECKING:  # a type checker must not accept every name

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if name in kind.LATER or name.removeprefix("a") in kind.LATER:
                raise NotBuilt(kind.__name__, name)
            known = [each for each in dir(kind) if not each.startswith("_")]
            raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}{did_you_mean(name, known)}")


class Handle(Reserved):
    """Immutable, so a copy is the object itself; has a client of the store, so it cannot be pickled."""

    __slots__ = ()

    INSTEAD: ClassVar[str] = ""
    """What to send instead of the pickled handle."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise UseError(f"a {type(self).__name__} cannot be pickled", hint=self.INSTEAD)
