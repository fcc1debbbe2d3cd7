"""Values of a subclass where JSON knows only the base: ``True`` for a declared ``int`` is stored as ``1``.

In Python ``bool`` is a subclass of ``int``, so a function that takes or returns an ``int`` takes and returns ``True``.
JSON has a type of its own for it. The value is walked together with its declared type, and each ``bool`` for which
only an ``int`` or a ``float`` is declared becomes a number. Used only after the plain check has failed.
"""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from msgspec import inspect

from mainspring.codec import wire

_ITEMS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType, inspect.CollectionType)
_FIELDED = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)
_NUMBERS = (inspect.IntType, inspect.FloatType)


def fit(value: Any, declared: Any) -> Any:
    """The value with a number for each ``bool`` that its declared type takes as a number; the same object if none.

    >>> fit([True, 2], list[int]), fit(True, bool | int), fit({"a": True}, dict[str, float | None])
    ([1, 2], True, {'a': 1})
    """
    try:
        return _fit(value, wire.type_info(declared))
    except Exception:  # noqa: BLE001 - a type that cannot be inspected: the decoder reports what is wrong with it
        return value


def _fit(value: Any, info: inspect.Type) -> Any:
    while isinstance(info, inspect.Metadata):
        info = info.type
    if isinstance(value, bool):
        return int(value) if _takes_number_only(info) else value
    if isinstance(info, inspect.UnionType):
        fitted = (_fit(value, each) for each in info.types)
        return next((each for each in fitted if each is not value), value)
    if isinstance(info, _ITEMS) and isinstance(value, list | tuple | set | frozenset):
        return _with_items(value, [_fit(item, info.item_type) for item in value])
    if isinstance(info, inspect.TupleType) and isinstance(value, list | tuple):
        return _with_items(value, list(map(_fit, value, info.item_types)) + list(value[len(info.item_types) :]))
    if isinstance(info, inspect.DictType) and isinstance(value, dict):
        pairs = [(_fit(key, info.key_type), _fit(item, info.value_type)) for key, item in value.items()]
        same = all(key is old and item is value[old] for (key, item), old in zip(pairs, value, strict=True))
        return value if same else dict(pairs)
    return _fit_fields(value, info) if isinstance(info, _FIELDED) else value


def _fit_fields(value: Any, info: Any) -> Any:
    """The same for a value with fields, or for a dict in the place of one."""
    if isinstance(value, dict):
        kinds = {field.encode_name: field.type for field in info.fields}
        fitted = {name: _fit(item, kinds[name]) if name in kinds else item for name, item in value.items()}
        return value if all(fitted[name] is value[name] for name in value) else fitted
    if isinstance(value, tuple):
        return _with_items(value, [_fit(item, field.type) for item, field in zip(value, info.fields, strict=True)])
    changed = {}
    for field in info.fields if wire.has_fields(type(value)) else ():
        part = getattr(value, field.name)
        if (fitted := _fit(part, field.type)) is not part:
            changed[field.name] = fitted
    return _with_fields(value, changed) if changed else value


def _takes_number_only(info: inspect.Type) -> bool:
    kinds = info.types if isinstance(info, inspect.UnionType) else (info,)
    return any(isinstance(each, _NUMBERS) for each in kinds) and not any(
        isinstance(each, inspect.BoolType | inspect.AnyType) for each in kinds
    )


def _with_items(value: Any, items: list[Any]) -> Any:
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    if hasattr(value, "_fields"):  # a named tuple
        return type(value)(*items)
    return next(base for base in (list, tuple, set, frozenset) if isinstance(value, base))(items)


def _with_fields(value: Any, changed: dict[str, Any]) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changed)
    made = copy.copy(value)
    for name, part in changed.items():
        object.__setattr__(made, name, part)  # also for a frozen dataclass
    return made
