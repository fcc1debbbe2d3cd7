"""The signature of a bulk task: a job of ``fn(items: Sequence[A]) -> Sequence[R | Exception]`` is A to R."""

from __future__ import annotations

import collections.abc
import types
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Union, get_args, get_origin

from msgspec import UNSET

from mainspring.codec.annotations import Parameters, check_type, declared_return, declared_type, parameter_names
from mainspring.codec.signature import PAYLOAD_LIMIT, Signature
from mainspring.errors import BadSignature, WrongArgument

ITEM = "item"
"""The name of the one argument of a bulk task's job, whatever the handler calls its list."""
_LISTS = (list, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Collection)


class ItemSignature(Signature):
    """The signature with one item as the argument. ``by`` is called with every item at enqueue, to check the item."""

    __slots__ = ("_by",)

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        skip_context: bool = False,
        task: str | None = None,
        limit: int = PAYLOAD_LIMIT,
        by: Callable[[Any], Hashable] | None = None,
    ) -> None:
        super().__init__(fn, skip_context=skip_context, task=task, limit=limit)
        self._by = by

    def encode_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        data = super().encode_call(args, kwargs)
        if self._by is not None:
            [item], _ = self.decode_call(data)
            try:
                hash(self._by(item))
            except Exception as error:  # noqa: BLE001 - a user's function, or a missing attribute
                why = f"has no value for by= to compare: {type(error).__name__}: {error}"
                raise WrongArgument(self.task, ITEM, f"argument {ITEM!r} {why}") from None
        return data

    @property
    def returns(self) -> Any:
        """The declared type of one outcome without exceptions; ``Any`` without an annotation."""
        if self._returns is UNSET:
            declared = _without_errors(self._part("return", declared_return(self.fn, self.task)))
            check_type(self.task, "return", declared)
            self._returns = declared
        return self._returns

    def _read(self) -> Parameters:
        name = parameter_names(self.fn, self.task)[int(self.skip_context)]
        found = Parameters()
        found.types[ITEM] = self._part(name, declared_type(self.fn, self.task, name))
        found.positional, found.by_keyword = [ITEM], [ITEM]
        check_type(self.task, name, found.types[ITEM])
        found.ready(self.task)
        return found

    def _part(self, name: str, declared: Any) -> Any:
        """The type of one item of a list type."""
        if declared is Any or declared in _LISTS:
            return Any
        if get_origin(declared) in _LISTS:
            return get_args(declared)[0]
        hint = "items: Sequence[Mail] and -> Sequence[str | Exception], or list."
        raise BadSignature(self.task, name, f"is declared as {declared}, not as a list", hint=hint)


def _without_errors(declared: Any) -> Any:
    parts = get_args(declared) if get_origin(declared) in (Union, types.UnionType) else (declared,)
    left = tuple(each for each in parts if not (isinstance(each, type) and issubclass(each, BaseException)))
    return Union[left] if left else None  # noqa: UP007 - the types are known only at run time
