"""What a declared type would lose of a value without an error: undeclared keys, digits, the kind of a collection.

Decoders ignore the keys that a TypedDict, a dataclass, a struct or a model does not declare, round an ``int`` that a
``float`` cannot hold, and make a list of a set. ``find_loss`` walks a value together with its declared type and
returns the first such part. The value is what a caller passes (a dict in the place of a dataclass, or the object), or
stored JSON.

``key_check`` is the part of it that runs for each job. It makes, once for a declared type, a decoder that refuses
undeclared keys and builds nothing else: a strict struct in the place of each class, raw bytes in the place of
everything without fields. Types without fields have no such decoder, and their arguments cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import GenericAlias
from typing import Any, NamedTuple, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import inspect

from mainspring.codec import wire
from mainspring.common.secret import Secret
from mainspring.errors import did_you_mean

_FIELDED = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)
_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.TupleType, inspect.CollectionType)
_ARRAYS = (*_LISTS, inspect.SetType, inspect.FrozenSetType, inspect.NamedTupleType)
_ITEMS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType, inspect.CollectionType)

KeyCheck: TypeAlias = Callable[[Any], bool]


class Loss(NamedTuple):
    """The path of the part, a sentence about it that starts with "is" or "has", and what to do."""

    path: str
    text: str
    hint: str


def find_loss(value: Any, declared: Any, name: str) -> Loss | None:
    """The first part of a fitting value that its declared type would lose; None if it holds all of it.

    >>> from typing import TypedDict
    >>> class Mail(TypedDict, total=False):
    ...     reply_to: str
    >>> find_loss({"replyto": "a"}, Mail, "mail").text
    "has the key 'replyto', which Mail does not declare; did you mean 'reply_to'?"
    """
    try:
        return _find(value.reveal() if isinstance(value, Secret) else value, _info(declared), name)
    except Exception:  # noqa: BLE001 - a type that cannot be inspected, or a class of the user: the decoder checks it
        return None


def key_check(declared: Any) -> KeyCheck | None:
    """A function that says whether JSON may have keys that the declared type ignores; None if no value can.

    It may say True for a value that loses nothing: ``find_loss`` decides.
    """
    try:
        strict = _strict(_info(declared), {})
    except Exception:  # noqa: BLE001 - as in find_loss
        return None
    if strict is _LEAF:
        return None
    try:
        decode = msgspec.json.Decoder(strict).decode
    except Exception:  # noqa: BLE001 - no strict decoder for this type: every value is looked through
        return lambda _: True

    def check(data: Any) -> bool:
        try:
            decode(data)
        except msgspec.ValidationError:
            return True
        return False

    return check


def _info(declared: Any) -> inspect.Type:
    """The description of a declared type, without the ``Secret`` around it."""
    return wire.type_info(get_args(declared)[0] if get_origin(declared) is Secret else declared)


def _find(value: Any, info: inspect.Type, path: str) -> Loss | None:
    while isinstance(info, inspect.Metadata):
        info = info.type
    if isinstance(info, inspect.UnionType):
        return _find_in_union(value, info, path)
    if isinstance(info, inspect.FloatType):
        return _rounded(value, path) if isinstance(value, int) else None
    if isinstance(info, _FIELDED):
        return _find_in_fields(value, info, path)
    if isinstance(info, inspect.CustomType):
        return _find_in_custom(value, info.cls, path)
    if isinstance(value, set | frozenset) and isinstance(info, _LISTS):
        hint = "Declare a set, for example set[int], or pass a list: sorted(...)."
        return Loss(path, f"is a {type(value).__name__} and would be read back as a list", hint)
    return _first(_find(part, kind, path + step) for step, part, kind in _items(value, info))


def _items(value: Any, info: inspect.Type) -> Iterator[tuple[str, Any, inspect.Type]]:
    """The items of a collection with their paths and declared types."""
    if isinstance(info, inspect.DictType) and isinstance(value, dict):
        yield from ((f"[{key!r}]", item, info.value_type) for key, item in value.items())
    elif isinstance(info, inspect.TupleType) and isinstance(value, list | tuple):
        pairs = zip(value, info.item_types, strict=False)
        yield from ((f"[{index}]", item, kind) for index, (item, kind) in enumerate(pairs))
    elif isinstance(info, _ITEMS) and isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{index}]", item, info.item_type) for index, item in enumerate(value))


def _find_in_union(value: Any, union: inspect.UnionType, path: str) -> Loss | None:
    """What the alternative that takes the value would lose: nothing if an alternative that fits it loses nothing."""
    found = [_find(value, each, path) for each in union.types if _may_take(value, each)]
    return found[0] if found and all(found) else None


def _may_take(value: Any, info: inspect.Type) -> bool:
    while isinstance(info, inspect.Metadata):
        info = info.type
    if isinstance(info, inspect.AnyType | inspect.CustomType):
        return True
    if isinstance(value, bool | None):
        return False
    if isinstance(value, int | float):
        return isinstance(info, inspect.FloatType) or (isinstance(value, int) and isinstance(info, inspect.IntType))
    if isinstance(value, list | tuple | set | frozenset):
        return isinstance(info, _ARRAYS) or getattr(info, "array_like", False)
    if isinstance(value, dict):
        if isinstance(info, inspect.StructType) and info.tag_field is not None:
            return bool(value.get(info.tag_field) == info.tag)
        return isinstance(info, (*_FIELDED, inspect.DictType))
    return isinstance(info, _FIELDED) and isinstance(value, info.cls)


def _find_in_fields(value: Any, info: Any, path: str) -> Loss | None:
    """The same for a value with fields: a dict or a list in its place, or the object."""
    fields = info.fields
    if isinstance(value, dict):
        kinds = {field.encode_name: field.type for field in fields}
        return _find_in_dict(value, kinds, info.cls, path, tag=getattr(info, "tag_field", None))
    if isinstance(value, list | tuple):
        kept = len(fields) + (getattr(info, "tag_field", None) is not None)
        if len(value) > kept:
            text = f"has {len(value)} items, of which {info.cls.__name__} declares {kept}"
            return Loss(path, text, "Remove the others, or declare them.")
        parts = zip(value[kept - len(fields) :], fields, strict=False)
        return _first(_find(part, field.type, f"{path}.{field.name}") for part, field in parts)
    if not isinstance(value, info.cls):
        return None
    return _first(_find(getattr(value, each.name, None), each.type, f"{path}.{each.name}") for each in fields)


def _find_in_custom(value: Any, kind: Any, path: str) -> Loss | None:
    """A dict in the place of a pydantic model that has no rule of its own for other keys."""
    if not isinstance(value, dict) or not hasattr(kind, "model_validate_json") or _reads_any_key(kind):
        return None
    return _find_in_dict(value, _model_keys(kind), kind, path)


def _model_keys(model: Any) -> dict[str, inspect.Type]:
    """The types of a model's fields by every name that the model reads or writes."""
    kinds: dict[str, inspect.Type] = {}
    for name, field in model.model_fields.items():
        names = {name, field.alias, field.validation_alias, field.serialization_alias}
        kinds |= {each: wire.type_info(field.annotation) for each in names if isinstance(each, str)}
    return kinds


def _reads_any_key(model: Any) -> bool:
    """Whether the model says itself what becomes of other keys, or reads keys that are not the names of its fields."""
    validators = getattr(model.__pydantic_decorators__, "model_validators", {})
    aliases = (field.validation_alias for field in model.model_fields.values())
    return (
        "extra" in model.model_config
        or any(each.info.mode != "after" for each in validators.values())
        or any(alias is not None and not isinstance(alias, str) for alias in aliases)
    )


def _find_in_dict(
    value: dict[Any, Any], kinds: dict[str, inspect.Type], owner: type, path: str, *, tag: str | None = None
) -> Loss | None:
    for key, part in value.items():
        if key in kinds:
            if (found := _find(part, kinds[key], f"{path}.{key}")) is not None:
                return found
        elif tag is None or key != tag:
            near = did_you_mean(str(key), [each for each in kinds if each not in value])
            text = f"has the key {key!r}, which {owner.__name__} does not declare{near}"
            return Loss(path, text, f"Keys: {', '.join(kinds)}." if kinds else "It has no keys.")
    return None


def _rounded(value: int, path: str) -> Loss | None:
    try:
        same = float(value) == value
    except OverflowError:
        return None  # the decoder refuses it
    return None if same else Loss(path, "is an int that a float cannot hold: it would be rounded", "Declare it as int.")


def _first(losses: Iterator[Loss | None]) -> Loss | None:
    return next((each for each in losses if each is not None), None)


# ---- the strict decoder ------------------------------------------------------------------------


_LEAF = msgspec.Raw
"""In the place of a type without fields: its JSON is not looked into."""


def _strict(info: inspect.Type, known: dict[Any, Any]) -> Any:
    """The type that decodes the same JSON and refuses undeclared keys. ``known`` has the structs made for classes."""
    while isinstance(info, inspect.Metadata):
        info = info.type
    if isinstance(info, inspect.UnionType):
        parts = [_strict(each, known) for each in info.types]
        found = [_opened(part, each) for part, each in zip(parts, info.types, strict=True)]
        return Union[(*found, *_SCALARS)] if any(part is not _LEAF for part in parts) else _LEAF
    if isinstance(info, inspect.CustomType):
        checked = hasattr(info.cls, "model_validate_json") and not _reads_any_key(info.cls)
        return _strict_class(info.cls, _model_keys(info.cls), known) if checked else _LEAF
    if isinstance(info, inspect.DictType):
        inner = _strict(info.value_type, known)
        return _LEAF if inner is _LEAF else GenericAlias(dict, (str, inner))
    if isinstance(info, inspect.TupleType):
        return _strict_places(info.item_types, known)
    if isinstance(info, inspect.NamedTupleType):
        return _strict_places([each.type for each in info.fields], known)
    if isinstance(info, _ITEMS):
        inner = _strict(info.item_type, known)
        return _LEAF if inner is _LEAF else GenericAlias(list, (inner,))
    if isinstance(info, _FIELDED):
        options = {each: getattr(info, each, None) for each in ("tag", "tag_field", "array_like")}
        return _strict_class(info.cls, {each.encode_name: each.type for each in info.fields}, known, **options)
    return _LEAF


_SCALARS = (None, bool, int, float, str)


def _opened(part: Any, info: inspect.Type) -> Any:
    """A type for one alternative of a union, where msgspec does not take raw bytes beside others."""
    while isinstance(info, inspect.Metadata):
        info = info.type
    if part is not _LEAF:
        return part
    if isinstance(info, _ARRAYS):
        return list[msgspec.Raw]
    return dict[str, msgspec.Raw] if isinstance(info, inspect.DictType) else None


def _strict_class(owner: Any, kinds: Mapping[str, inspect.Type], known: dict[Any, Any], **options: Any) -> Any:
    if owner not in known:
        fields = {f"f{place}": key for place, key in enumerate(kinds)}
        made = msgspec.defstruct(
            "Strict", [(name, Any, None) for name in fields], rename=fields, forbid_unknown_fields=True,
            **{name: value for name, value in options.items() if value},
        )  # fmt: skip
        known[owner] = made  # before its fields: a class may contain itself
        made.__annotations__.update({name: _strict(kinds[key], known) for name, key in fields.items()})
    return known[owner]


def _strict_places(types: Sequence[inspect.Type], known: dict[Any, Any]) -> Any:
    """A list whose places have types of their own."""
    parts = [_strict(each, known) for each in types]
    if all(part is _LEAF for part in parts):
        return _LEAF
    fields = [(f"f{place}", part, None) for place, part in enumerate(parts)]
    return msgspec.defstruct("Strict", fields, array_like=True)
