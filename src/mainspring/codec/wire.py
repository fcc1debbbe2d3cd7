"""All uses of msgspec by the codec.

JSON is written by one encoder and read by one decoder per declared type. Two hooks add types that msgspec does not
support: pydantic models (by their methods; pydantic is never imported), paths, ``Secret``, and subclasses of ``str``,
``int`` and ``float``, which are written as their base type.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, NamedTuple, get_args, get_origin
from uuid import UUID

import msgspec
import msgspec.inspect

from mainspring.common.secret import Secret

DEPTH_LIMIT = 64

_PLAIN = (str, bytes, bytearray, dict, list, tuple, set, frozenset)
_NATIVE = (bytes, bytearray, datetime, date, time, timedelta, UUID, Decimal)


def to_json(value: Any) -> Any:
    """Encoder hook: a simpler value for one that msgspec cannot write."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, str) and not isinstance(value, Enum):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, Enum):
        return int(value)
    if isinstance(value, float) and not isinstance(value, Enum):
        return float(value)
    if not isinstance(value, type):
        if hasattr(value, "model_dump") and hasattr(value, "model_validate_json"):
            return value.model_dump(mode="json", by_alias=True, round_trip=True)
        if isinstance(value, os.PathLike):
            return os.fspath(value)
    raise NotImplementedError


class UnreadableType(Exception):
    """A declared type whose values cannot be built from JSON, for example ``OrderedDict`` or a class of the user."""

    def __init__(self, declared: Any) -> None:
        self.shown = shown_type(declared)
        super().__init__(f"{self.shown} cannot be read from JSON")
        base = plain_type(declared)
        self.hint = (
            "Declare a dataclass, an attrs, msgspec or pydantic type, or plain values."
            if base is None
            else f"Declare {shown_type(base)} in the task's signature."
        )


def from_json(declared: Any, value: Any) -> Any:
    """Decoder hook: a value of a declared type that msgspec cannot build."""
    if declared is Secret or get_origin(declared) is Secret:
        return _secret((*get_args(declared), Any)[0], value)
    if isinstance(declared, type):
        if isinstance(value, declared):  # from convert(), which also passes instances
            return value
        if hasattr(declared, "model_validate_json"):
            return declared.model_validate_json(encode(value))
        if hasattr(declared, "__fspath__") and isinstance(value, str):
            return declared(value)
    raise UnreadableType(declared)


def plain_type(declared: Any) -> Any:
    """The type of JSON in the place of another container: ``dict[str, int]`` for ``OrderedDict[str, int]``; or None."""
    kind, args = get_origin(declared) or declared, get_args(declared)
    if not isinstance(kind, type):
        return None
    if issubclass(kind, Counter) and len(args) == 1:
        args = (*args, int)
    bases: tuple[Any, ...] = (dict, list, tuple, set, frozenset)
    base = next((each for each in bases if issubclass(kind, each)), None)
    if base is None and issubclass(kind, Iterable):
        base = dict if issubclass(kind, Mapping) else list
    return base[args] if base is not None and args else base


def shown_type(declared: Any) -> str:
    """A type as it is written in an annotation, without the names of modules."""
    if isinstance(declared, type) and not get_args(declared):
        return declared.__name__
    return re.sub(r"(?<![\w.'\"])(?:[\w<>]+\.)+(?=\w)", "", str(declared))


def _secret(inner: Any, value: Any) -> Secret[Any]:
    """Build the value from plain JSON, or check an instance."""
    return Secret(convert(value.reveal(), inner) if isinstance(value, Secret) else decode(encode(value), inner))


_encoder = msgspec.json.Encoder(enc_hook=to_json)
encode = _encoder.encode

_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder_for(declared: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a declared type, made once; ``TypeError`` if JSON cannot represent the type."""
    try:
        found = _decoders.get(declared)
    except TypeError:  # not hashable, for example Annotated with a list
        return msgspec.json.Decoder(declared, dec_hook=from_json)
    if found is None:
        found = _decoders[declared] = msgspec.json.Decoder(declared, dec_hook=from_json)
    return found


def decode(data: Any, declared: Any) -> Any:
    """The value of ``data`` as its declared type."""
    return decoder_for(declared).decode(data)


_type_infos: dict[Any, msgspec.inspect.Type] = {}


def type_info(declared: Any) -> msgspec.inspect.Type:
    """The description of a declared type, made once."""
    try:
        found = _type_infos.get(declared)
    except TypeError:  # not hashable
        return msgspec.inspect.type_info(declared)
    if found is None:
        found = _type_infos[declared] = msgspec.inspect.type_info(declared)
    return found


def convert(value: Any, declared: Any) -> Any:
    """The value converted to the declared type; ``ValidationError`` if it does not fit."""
    return msgspec.convert(value, declared, builtin_types=_NATIVE, dec_hook=from_json)


def dumps(value: Any) -> bytes:
    """JSON of our own records."""
    return encode(value)


def loads(data: bytes | memoryview | msgspec.Raw, declared: Any = Any) -> Any:
    """Our own records from JSON."""
    return decode(data, declared)


def too_deep(data: bytes, limit: int) -> bool:
    """Whether the JSON is nested deeper than ``limit``."""
    if len(data) <= 2 * limit or data.count(b"[") + data.count(b"{") <= limit:
        return False  # each level has two brackets
    bare = re.sub(rb'"(?:[^"\\]|\\.)*+"', b"", data)
    open_close = bare.translate(_BRACKETS, _NOT_BRACKETS)
    for _ in range(limit):  # each pass removes the innermost level
        if not open_close:
            return False
        open_close = open_close.replace(b"[]", b"")
    return bool(open_close)


_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


_FIELDED = ("__struct_fields__", "__dataclass_fields__", "__attrs_attrs__", "model_fields")


def has_fields(kind: type) -> bool:
    """A struct, dataclass, attrs class or pydantic model."""
    return any(hasattr(kind, each) for each in _FIELDED)


def fields_of(value: Any) -> list[str]:
    """Names of the fields of a struct, dataclass, attrs class or pydantic model."""
    kind = type(value)
    if (names := getattr(kind, "__struct_fields__", None)) is not None:
        return list(names)
    if (names := getattr(kind, "__dataclass_fields__", None)) is not None:
        return list(names)
    if (names := getattr(kind, "__attrs_attrs__", None)) is not None:
        return [attribute.name for attribute in names]
    if (names := getattr(kind, "model_fields", None)) is not None:
        return list(names)
    return []


def children(value: Any) -> list[tuple[str, Any]]:
    """The parts of a value, each with its path."""
    if isinstance(value, dict):
        parts = [(f"[{key!r}]", item) for key, item in value.items()]
        return [(f" key {key!r}", key) for key in value if not isinstance(key, int)] + parts
    if isinstance(value, (list, tuple, set, frozenset)):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    return [(f".{name}", getattr(value, name, None)) for name in fields_of(value)]


def unwritable(value: Any, path: str, depth: int = DEPTH_LIMIT) -> tuple[str, Any, Exception] | None:
    """The innermost part that cannot be written, its path and the reason."""
    try:
        encode(value)
    except Exception as error:  # noqa: BLE001 - an encoder runs user code; any failure means "cannot be written"
        if depth and not isinstance(error, RecursionError):
            for step, part in children(value):
                if (found := unwritable(part, path + step, depth - 1)) is not None:
                    return found
        return path, value, error
    return None


class BadKey(NamedTuple):
    """A key of a dict that cannot be the name of a JSON field."""

    value: Any


def bad_key(value: Any) -> BadKey | None:
    """The first key of a dict that cannot be written; None for other values, and if every key can be written."""
    for key in value if isinstance(value, dict) else ():
        try:
            encode({key: None})
        except Exception:  # noqa: BLE001 - an encoder runs user code
            return BadKey(key)
    return None


def loses_fields(sent: Any, back: Any, path: str) -> bool:
    """Whether the first difference is an object of a subclass that would be read back as its base class."""
    found = difference(sent, back, path)
    return found is not None and type(found[1]) is not type(found[2]) and isinstance(found[1], type(found[2]))


def find_part(value: Any, path: str, wanted: Callable[[Any], bool], depth: int = DEPTH_LIMIT) -> tuple[str, Any] | None:
    """The path and the first part for which the function returns True."""
    if wanted(value):
        return path, value
    if depth:
        for step, part in children(value):
            if (found := find_part(part, path + step, wanted, depth - 1)) is not None:
                return found
    return None


def find(value: Any, path: str, wanted: Callable[[Any], bool]) -> str | None:
    """The path of the first part for which the function returns True."""
    found = find_part(value, path, wanted)
    return None if found is None else found[0]


def has_nul(value: Any) -> bool:
    """Whether the value is text with a NUL character, which PostgreSQL cannot keep."""
    return isinstance(value, str) and "\0" in value


def is_not_finite(value: Any) -> bool:
    """Whether the value is a float that JSON cannot represent."""
    return isinstance(value, float) and not isfinite(value)


def is_unequal_number(value: Any) -> bool:
    """Whether the value is a float that JSON cannot represent, or a ``Decimal`` that does not equal itself."""
    return is_not_finite(value) or (isinstance(value, Decimal) and value.is_nan())


def number_advice(value: float | Decimal, declared: Any, verb: str) -> str:
    """What to pass or return instead of such a number."""
    if declared is Any:
        return f"{verb} None."
    return f"{verb} None, and allow it in the declared type: {type(value).__name__} | None."


def has_no_number(data: bytes) -> bool:
    """Whether the JSON may have such a number: msgspec writes ``null`` for the one, and text for the other."""
    return b"null" in data or b"NaN" in data


def private_advice(value: Any, path: str) -> str:
    """What to do about a part that is a private attribute of a pydantic model; empty for another part."""
    name = path.rpartition(".")[2]
    if find_part(value, "", lambda part: name in (getattr(part, "__pydantic_private__", None) or {})) is None:
        return ""
    return "A private attribute is not stored: declare it as a field of the model, or pass its value on its own."


def plain_advice(path: str, part: Any, declared: Any = Any) -> str:
    """What to pass instead of a container or a number of another library; empty if that does not fit ``declared``."""
    if callable(getattr(type(part), "tolist", None)):  # numpy, pandas, torch
        return f"Pass {path}.tolist(), which gives plain Python values."
    if isinstance(part, _PLAIN) or has_fields(type(part)) or not isinstance(part, Iterable):
        return ""
    base = dict if isinstance(part, Mapping) else list
    if base is list and type(part).__module__ not in ("builtins", "collections"):
        return ""  # a file or a table is iterable too, and its items are not its value
    if declared is Any:
        return f"Pass {base.__name__}({path})."
    wanted = plain_type(declared)
    if wanted is None or ((get_origin(wanted) or wanted) is dict) is not (base is dict):
        return ""
    unreadable = isinstance(type_info(declared), msgspec.inspect.CustomType)
    return f"Pass {base.__name__}({path})" + (f", and declare {shown_type(wanted)}." if unreadable else ".")


def difference(sent: Any, back: Any, path: str, *, tuples_as_lists: bool = False) -> tuple[str, Any, Any] | None:
    """The first part that differs after decoding, or None. Classes without ``==`` are compared by their fields."""
    try:
        if bool(sent == back):
            return None
    except Exception:  # noqa: BLE001 - __eq__ is user code
        return path, sent, back
    if isinstance(sent, datetime) and isinstance(back, datetime) and _same_moment(sent, back):
        return None
    alike = type(sent) is type(back) or (isinstance(sent, dict) and isinstance(back, dict))
    if not alike and not (tuples_as_lists and isinstance(sent, tuple) and isinstance(back, list)):
        return path, sent, back
    ours, theirs = dict(children(sent)), dict(children(back))
    if hasattr(sent, "__pydantic_private__"):
        hidden = _private_parts(sent, back)
        ours |= {step: part for step, (part, _) in hidden.items()}
        theirs |= {step: part for step, (_, part) in hidden.items()}
    if isinstance(sent, (set, frozenset)) or not ours or list(ours) != list(theirs):
        return path, sent, back
    for step, part in ours.items():
        found = difference(part, theirs[step], path + step, tuples_as_lists=tuples_as_lists)
        if found is not None:
            return found
    return None


def _private_parts(sent: Any, back: Any) -> dict[str, tuple[Any, Any]]:
    """The undeclared (``extra="allow"``) and the private attributes of two pydantic models of one class, by path.

    A private attribute that differs between two models of the same JSON (a lock, the time of its making) is no part of
    the value.
    """
    found = {}
    for attribute in ("__pydantic_extra__", "__pydantic_private__"):
        ours, theirs = (getattr(each, attribute, None) or {} for each in (sent, back))
        for name in {**ours, **theirs}:
            one, other = ours.get(name), theirs.get(name)
            if one is not other and difference(one, other, "") is not None:
                found[f".{name}"] = (one, other)
    if found:
        again = type(sent).model_validate_json(encode(back))
        new = getattr(again, "__pydantic_private__", None) or {}
        theirs = getattr(back, "__pydantic_private__", None) or {}
        found = {
            step: parts for step, parts in found.items()
            if step[1:] not in theirs or difference(theirs[step[1:]], new.get(step[1:]), "") is None
        }  # fmt: skip
    return found


def _same_moment(one: datetime, other: datetime) -> bool:
    """Whether two times with the same offset are the same moment. Python's ``==`` says no for a time of a zone that the
    clock shows twice (``fold=1``), or never."""
    offset = one.utcoffset()
    bare = [each.replace(tzinfo=None, fold=0) for each in (one, other)]
    return offset is not None and offset == other.utcoffset() and bare[0] == bare[1]
