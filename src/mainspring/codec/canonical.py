"""Canonical JSON: equal values have the same text, independent of the order of keys and the form of numbers."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.codec import wire

_encode = msgspec.json.Encoder(order="deterministic", enc_hook=wire.to_json).encode
_EXACT = 2**53
"""Whole floats below this number are exact: 1.0 and 1 are equal."""


def canonical(value: Any) -> bytes:
    """The text of a plain JSON value.

    >>> canonical({"b": 1.0, "a": [None, "x"]}) == canonical({"a": [None, "x"], "b": 1})
    True
    """
    return _encode(_normal(value))


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """Any storable value as plain JSON values; sets are sorted."""
    found: dict[str, Any] = msgspec.json.decode(_encode(values))
    return found


def _normal(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, list):
        return [_normal(item) for item in value]
    if isinstance(value, dict):
        return {key: _normal(item) for key, item in value.items()}
    return value
