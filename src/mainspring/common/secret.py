"""Secret: a value that is not shown by accident."""

from __future__ import annotations

from typing import Any, Generic, NoReturn, TypeVar

from mainspring.common.redact import HIDDEN, remember

T_co = TypeVar("T_co", covariant=True)


class Secret(Generic[T_co]):
    """Contains a value and shows ``***``; :meth:`reveal` returns the value.

    As the type of a task's argument or result (``token: Secret[str]``) it keeps the value out of
    logs, errors, job records and the command line, in this process and in the worker. The store
    has the plain value: every user who can read the store can read the value.

    >>> token = Secret("s3cr3t-value")
    >>> print(token, [token], f"{token}")
    *** [***] ***
    >>> token.reveal()
    's3cr3t-value'
    """

    __slots__ = ("_value",)

    def __init__(self, value: T_co) -> None:
        object.__setattr__(self, "_value", value)
        remember(value)

    def reveal(self) -> T_co:
        """The value itself."""
        value: T_co = object.__getattribute__(self, "_value")
        return value

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __eq__(self, other: object) -> bool:
        return self.reveal() == other.reveal() if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash((Secret, self.reveal()))

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (self.reveal(),)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError("a Secret cannot be changed: make a new one")
