"""Base classes of handles in the public API, and the errors of names that do not exist.

A name of another library gets a sentence with the name here, a name of a later release what to do until then: the
table is ``foreign_names.py``, imported when the first unknown name is used. Such errors are ``AttributeError``, so that
``hasattr``, ``copy``, ``pickle`` and ``inspect`` work; names with a leading underscore are not looked up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from mainspring import errors
from mainspring.errors import (
    InvalidOption,
    NotBuilt,
    NotBuiltAttribute,
    NotBuiltImport,
    UnknownAttribute,
    UnknownImport,
    UseError,
    did_you_mean,
)


def missing_attribute(owner: object, name: str) -> Any:
    """Raise the error of an attribute that does not exist, from ``__getattr__``.

    Python also calls ``__getattr__`` when a property raised ``AttributeError``. Then the property is read again, which
    raises its own error.
    """
    kind = type(owner)
    if hasattr(kind, name):
        return object.__getattribute__(owner, name)
    if name.startswith("_"):
        raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}")
    places = [each.__name__ for each in kind.__mro__]
    later = later_hint(name, *places) or (later_hint(name[1:], *places) if name.startswith("a") else "")
    if later:
        raise NotBuiltAttribute(kind.__name__, name, hint=later)
    hint = foreign_hint(name, *places)
    near = "" if hint else did_you_mean(name, [each for each in dir(owner) if not each.startswith("_")])
    raise UnknownAttribute(f"{kind.__name__!r} object", name, hint=hint, near=near)


def missing_name(package: str, name: str, known: Iterable[str], *, importing: bool) -> Exception:
    """The error of a name that the package does not have; ``importing`` for ``from package import name``."""
    from importlib.util import find_spec

    if name.startswith("_") or (importing and find_spec(f"{package}.{name}") is not None):
        return AttributeError(f"module {package!r} has no attribute {name!r}")  # a module is imported after this
    if later := later_hint(name, "module"):
        return (NotBuiltImport if importing else NotBuiltAttribute)(package, name, hint=later)
    hint = foreign_hint(name, "module")
    if not hint and isinstance(getattr(errors, name, None), type):
        hint = f"The error is in the module of errors: from mainspring.errors import {name}"
    near = "" if hint else did_you_mean(name, known)
    if importing:
        return UnknownImport(package, name, hint=hint, near=near)
    return UnknownAttribute(f"module {package!r}", name, hint=hint, near=near)


def not_built(place: str, name: str) -> NotBuilt:
    """The error of an operator or a command that a later release will have."""
    return NotBuilt(place, name, hint=later_hint(name, place))


def foreign_hint(name: str, *places: str) -> str:
    """What another library's name is called here; an empty text for an unknown name."""
    from mainspring.common.foreign_names import FOREIGN

    return next((FOREIGN[place][name] for place in places if name in FOREIGN.get(place, ())), "")


def later_hint(name: str, *places: str) -> str:
    """What to do until the name is built; an empty text for a name that is not planned."""
    from mainspring.common.foreign_names import LATER

    return next((LATER[place][name] for place in places if name in LATER.get(place, ())), "")


def without_options(task: Any, name: str, *, hint: str = "Leave .options(...) out.") -> Any:
    """The task, where only its name counts; refused if it is ``task.options(...)``, which would be ignored."""
    given = getattr(task, "given", None) if callable(getattr(task, "s", None)) else None
    if given:
        why = f"has job options ({', '.join(given)}), and only the name of the task counts here"
        raise InvalidOption(name, task, why, hint=hint)
    return task


def refuse_assigned(name: str, value: object, subject: str, hint: str) -> NoReturn:
    """The error of an option that is assigned, ``task.retries = 9``: an attribute of that name would be ignored."""
    raise InvalidOption(name, value, "cannot be assigned, it would have no effect", subject=subject, hint=hint)


class PublicNames(type):
    """The class of a class with attributes for other modules of the package (``_INTERNAL``), which users do not need:
    ``help()`` and ``dir()`` leave them out, of the class and of its instances."""

    def __dir__(cls) -> list[str]:
        return _without_internal(cls, super().__dir__())


def _without_internal(kind: type, names: Iterable[str]) -> list[str]:
    internal = {name for each in kind.__mro__ for name in vars(each).get("_INTERNAL", ())}
    return [name for name in names if name not in internal]


class Reserved(metaclass=PublicNames):
    """Explains names of later releases and of other libraries; an unknown name gets a suggestion."""

    __slots__ = ()

    _INTERNAL: ClassVar[frozenset[str]] = frozenset()
    """Names for other modules of the package."""

    def __dir__(self) -> list[str]:
        return _without_internal(type(self), super().__dir__())

    if not TYPE_CHECKING:  # a type checker must not accept every name

        def __getattr__(self, name: str) -> Any:
            return missing_attribute(self, name)


class Handle(Reserved):
    """Immutable, so a copy is the object itself; has a client of the store, so it cannot be pickled."""

    __slots__ = ()

    _INSTEAD: ClassVar[str] = ""
    """What to send instead of the pickled handle."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise UseError(f"a {type(self).__name__} cannot be pickled", hint=self._INSTEAD)
