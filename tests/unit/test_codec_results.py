"""A result is stored so that it comes back equal, or a note says why it was not; encoding never raises."""

from __future__ import annotations

import contextlib
import math
import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.codec import EncodedResult, Signature, decode_result, encode_result
from mainspring.errors import ResultNotSerializable, ResultTooLarge, Undecodable
from tests.unit import codec_samples as samples
from tests.unit.codec_samples import Invoice, Line, Point, User


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Any, {"a": [1, None]}),
        (Any, None),
        (None, None),
        (int | None, None),
        (tuple[int, str], (1, "a")),
        (set[int], {1, 2}),
        (datetime, datetime(2030, 1, 1, tzinfo=UTC)),
        (Invoice, Invoice([Line("a", 1)])),
        (User, User(name="Ann")),
        (list[User], [User(name="Ann")]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_result_comes_back_as_declared(annotation: Any, value: Any) -> None:
    data, note = encode_result(value, annotation)
    assert note is None
    assert data is not None
    assert decode_result(data, annotation) == value


def test_an_undeclared_tuple_comes_back_as_a_list() -> None:
    assert encode_result({"a": (1, (2, 3))}) == EncodedResult(b'{"a":[1,[2,3]]}', None)


class Hostile:
    """Raises in every method that a codec could call."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("eq")

    def __repr__(self) -> str:
        raise RuntimeError("repr")

    __hash__ = None  # type: ignore[assignment]  # as hostile as can be


def ring() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Any, {1, 2}),
        (Any, datetime(2030, 1, 1, tzinfo=UTC)),
        (Any, math.nan),
        (float, math.inf),
        (Any, "\ud800"),
        (Any, ["a\0"]),
        (Any, object()),
        (Any, [threading.Lock()]),
        (Any, Hostile()),
        (Hostile, Hostile()),
        (Any, {"a": Hostile()}),
        (Any, ring()),
        (int, "5"),
        (None, 5),
        (datetime | str, "x"),
        (Point, Line("a", 1)),
    ],
    ids=lambda v: type(v).__name__,
)
def test_a_value_that_cannot_be_stored_is_a_note_and_never_an_exception(annotation: Any, value: Any) -> None:
    data, note = encode_result(value, annotation)
    assert data is None
    assert isinstance(note, ResultNotSerializable)
    assert str(note)


def test_a_result_too_large_is_dropped_with_its_size() -> None:
    data, note = encode_result("x" * 100, str, limit=50)
    assert data is None
    assert isinstance(note, ResultTooLarge)
    assert (note.size, note.limit) == (102, 50)


def test_a_signature_has_its_result_type() -> None:
    signature = Signature.of(samples.later)
    data, note = signature.encode_result(Point(1, 2))
    assert note is None
    assert data is not None
    assert signature.decode_result(data) == Point(1, 2)


def test_a_return_type_that_cannot_be_resolved_does_not_lose_a_plain_result() -> None:
    assert Signature.of(samples.unresolved_return).encode_result([1]) == EncodedResult(b"[1]", None)


@given(st.binary(max_size=40))
def test_any_bytes_decode_to_a_result_or_are_undecodable(data: bytes) -> None:
    """Any other exception fails the test."""
    with contextlib.suppress(Undecodable):
        decode_result(data, list[int])
