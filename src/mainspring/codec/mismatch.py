"""A value that does not fit its declared type, in the terms of Python: which part, what was expected, what it is.

msgspec describes values as JSON does (``object``, ``array``, ``null``) and shows ``[...]`` for the key of a dict. Here
the value and the declared type are walked together to the innermost part that does not fit.
"""

from __future__ import annotations

import collections.abc
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from mainspring.codec import wire
from mainspring.codec.failures import text_of
from mainspring.common.secret import Secret

_PLAIN = r"Expected [\w |.-]+, got [\w |.-]+"
_JSON_WORDS = {"object": "dict", "array": "list", "null": "None"}
_SEQUENCES = (list, set, frozenset, collections.abc.Sequence, collections.abc.Set)
_MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


class Mismatch(NamedTuple):
    """The path of the part, and the sentence about it: ``expected Base, got int``."""

    path: str
    text: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.path}{'' if self.text.startswith(':') else ' '}{self.text}"


def describe_mismatch(value: Any, declared: Any, name: str, error: Exception) -> Mismatch:
    """Describe why the value does not fit. ``error`` is what the decoder said of the value as JSON."""
    if (found := _failure(value, declared)) is None:
        text, _, place = text_of(error).replace("`", "").partition(" - at ")
        return Mismatch(place.replace("$", name) or name, _sentence(text))
    path, part, kind, error = _innermost(value, declared, name, found)
    hint = wire.plain_advice(path, part, kind)
    text, _, place = text_of(error).replace("`", "").partition(" - at ")
    if not place and re.fullmatch(_PLAIN, text) and not isinstance(part, Secret):
        got = "None" if part is None else type(part).__name__
        return Mismatch(path, f"expected {wire.shown_type(kind)}, got {got}", hint)
    return Mismatch(place.replace("$", path) or path, _sentence(text), "" if place else hint)


def _sentence(text: str) -> str:
    if not text.startswith("Expected"):
        return ": " + text
    return re.sub(r"\b(object|array|null)\b", lambda found: _JSON_WORDS[found[0]], text[:1].lower() + text[1:])


def _failure(value: Any, declared: Any) -> Exception | None:
    try:
        wire.convert(value, declared)
    except Exception as error:  # noqa: BLE001 - decoders run user code
        return error
    return None


def _innermost(
    value: Any, declared: Any, path: str, error: Exception, depth: int = wire.DEPTH_LIMIT
) -> tuple[str, Any, Any, Exception]:
    for step, part, kind in _parts(value, declared) if depth else ():
        if (inner := _failure(part, kind)) is not None:
            return _innermost(part, kind, path + step, inner, depth - 1)
    return path, value, declared, error


def _parts(value: Any, declared: Any) -> Iterator[tuple[str, Any, Any]]:
    """The parts of a value with their paths and declared types; nothing if the two do not correspond."""
    declared = _without_none(declared)
    origin, args = get_origin(declared) or declared, get_args(declared)
    if origin in _MAPPINGS and len(args) == 2 and isinstance(value, Mapping):
        yield from ((f" key {key!r}", key, args[0]) for key in value)
        yield from ((f"[{key!r}]", item, args[1]) for key, item in value.items())
    elif origin is tuple and isinstance(value, list | tuple) and args:
        kinds = (args[0],) * len(value) if args[-1] is Ellipsis else args
        yield from ((f"[{n}]", item, kind) for n, (item, kind) in enumerate(zip(value, kinds, strict=False)))
    elif origin in _SEQUENCES and len(args) == 1 and isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{n}]", item, args[0]) for n, item in enumerate(value))
    elif isinstance(origin, type) and wire.has_fields(origin) and isinstance(value, Mapping):
        try:
            hints = get_type_hints(origin)
        except Exception:  # noqa: BLE001 - the decoder reports a name that cannot be resolved
            return
        yield from ((f".{name}", value[name], kind) for name, kind in hints.items() if name in value)


def _without_none(declared: Any) -> Any:
    if get_origin(declared) in (Union, types.UnionType):
        rest = [each for each in get_args(declared) if each is not type(None)]
        return rest[0] if len(rest) == 1 else declared
    return declared
