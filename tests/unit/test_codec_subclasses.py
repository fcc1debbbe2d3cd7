"""Subclasses of a declared type, containers of other libraries, and numbers that JSON does not have.

A value whose class is a subclass of the declared type is accepted, as Python and type checkers do, if the declared type
can hold it: it is stored and read back as a value of the declared type.
"""

from __future__ import annotations

import collections
import io
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import msgspec
import pytest

from mainspring.codec import Signature, decode_result, dumps_call, encode_result
from mainspring.errors import ArgumentError, BadSignature, Undecodable


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Size:
    width: int
    more: dict[str, int]


class Box(msgspec.Struct, frozen=True, rename="camel"):
    box_count: int


class Tagged(msgspec.Struct, tag=True):
    n: float


class Row(dict[str, int]):
    """A dict of a program's own."""


class Scalar:
    """Like a number of numpy: neither an int nor a float."""

    def tolist(self) -> int:
        return 3


def declared(annotation: Any) -> Signature:
    def task(x: Any) -> Any: ...

    task.__annotations__ = {"x": annotation, "return": annotation}
    return Signature.of(task)


def refusal(annotation: Any, value: Any) -> str:
    with pytest.raises(ArgumentError) as error:
        declared(annotation).encode_call((value,), {})
    return str(error.value)


FITTING: list[tuple[Any, Any, Any]] = [
    (int, True, 1),
    (int | None, False, 0),
    (float, True, 1.0),
    (int | str, True, 1),
    (Annotated[int, msgspec.Meta(ge=1)], True, 1),
    (list[int], [True, 2], [1, 2]),
    (Sequence[int], (True, 2), [1, 2]),
    (tuple[int, str], (True, "a"), (1, "a")),
    (tuple[int, ...], (True, 2), (1, 2)),
    (set[int], {True, 2}, {1, 2}),
    (dict[str, list[int]], {"a": [True]}, {"a": [1]}),
    (dict[str, int] | None, {"a": True}, {"a": 1}),
    (Point, Point(True, 2), Point(1, 2)),
    (Size, Size(True, {"a": False}), Size(1, {"a": 0})),
    (Size, {"width": True, "more": {}}, Size(1, {})),
    (Box, Box(True), Box(1)),
    (Box, {"boxCount": True}, Box(1)),
    (Tagged, Tagged(True), Tagged(1.0)),
    (dict[str, int], collections.OrderedDict(a=1), {"a": 1}),
    (dict[str, int], collections.defaultdict(int, a=1), {"a": 1}),
    (Mapping[str, int], collections.Counter("aab"), {"a": 2, "b": 1}),
    (dict[str, int], Row(a=True), {"a": 1}),
    (Any, collections.OrderedDict(a=1), {"a": 1}),
    (tuple[int, int], Point(1, 2), (1, 2)),
]


@pytest.mark.parametrize(("annotation", "value", "back"), FITTING, ids=[str(each[:2]) for each in FITTING])
def test_a_value_of_a_subclass_is_stored_as_the_declared_type(annotation: Any, value: Any, back: Any) -> None:
    signature = declared(annotation)
    [found], _ = signature.decode_call(signature.encode_call((value,), {}))
    data, note = encode_result(value, annotation)
    assert note is None
    assert data is not None
    for each in (found, decode_result(data, annotation)):
        assert each == back
        assert "True" not in repr(each)
        assert "False" not in repr(each)
        assert type(each) is type(back)


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(bool, True), (Any, True), (bool | int, True), (bool | None, False)],
    ids=str,
)
def test_a_bool_stays_a_bool_where_the_type_takes_one(annotation: Any, value: bool) -> None:
    signature = declared(annotation)
    [found], _ = signature.decode_call(signature.encode_call((value,), {}))
    assert found is value


def test_items_and_keywords_of_a_call_are_fitted_too() -> None:
    def task(*args: int, **kwargs: int) -> None: ...

    signature = Signature.of(task)
    assert signature.decode_call(signature.encode_call((True, 2), {"a": False})) == ((1, 2), {"a": 0})


@pytest.mark.parametrize("call", [((True,), {}), ((), {"x": True})], ids=["by position", "by keyword"])
def test_a_call_by_name_is_fitted_when_it_is_read(call: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    (value,), _ = declared(int).decode_call(dumps_call("task", *call))
    assert value is not True
    assert value == 1


@pytest.mark.parametrize(("annotation", "value"), [(int, "1"), (str, 1), (str, True), (bool, 1), (int, 1.5)], ids=str)
def test_other_types_stay_strict(annotation: Any, value: Any) -> None:
    assert refusal(annotation, value).endswith(f"expected {annotation.__name__}, got {type(value).__name__}")
    _, note = encode_result(value, annotation)
    assert f"expected {annotation.__name__}, got {type(value).__name__}" in str(note)
    with pytest.raises(Undecodable):
        declared(annotation).decode_call(dumps_call("task", (value,), {}))


def test_a_subclass_with_more_fields_is_refused() -> None:
    @dataclass(frozen=True)
    class Larger(Size):
        depth: int = 0

    assert "would be read back as a Size" in refusal(Size, Larger(1, {}))


OTHERS: list[tuple[Any, Callable[[], Any], str]] = [
    (Any, lambda: collections.deque([1]), "argument 'x' is a deque, which cannot be stored\n  Pass list(x)."),
    (list[int], lambda: collections.deque([1]), "argument 'x' expected list[int], got deque\n  Pass list(x)."),
    (Sequence[int], lambda: range(3), "argument 'x' expected Sequence[int], got range\n  Pass list(x)."),
    (Any, lambda: (each for each in [1]), "argument 'x' is a generator, which cannot be stored\n  Pass list(x)."),
    (dict[str, int], lambda: types.MappingProxyType({}), "is a mappingproxy, which cannot be stored\n  Pass dict(x)."),
    (dict[str, int], lambda: collections.deque([1]), "argument 'x' expected dict[str, int], got deque"),
    (Any, lambda: {"a": [collections.deque()]}, "which cannot be stored\n  Pass list(x['a'][0])."),
    (
        Any,
        lambda: io.StringIO("a"),
        "Pass plain values, or declare it as a dataclass, attrs, msgspec or pydantic type.",
    ),
    (Any, Scalar, "is a Scalar, which cannot be stored\n  Pass x.tolist(), which gives plain Python values."),
    (int, Scalar, "expected int, got Scalar\n  Pass x.tolist(), which gives plain Python values."),
    (
        Any,
        lambda: Point(1, 2),
        "read back as a list: [1, 2]\n  Declare its type in the task's signature: x: Point",
    ),
]


@pytest.mark.parametrize(("annotation", "make", "text"), OTHERS, ids=[each[2] for each in OTHERS])
def test_a_refused_container_says_what_to_pass(annotation: Any, make: Callable[[], Any], text: str) -> None:
    assert refusal(annotation, make()).endswith(text)


UNREADABLE: list[tuple[Any, Any, str]] = [
    (collections.OrderedDict[str, int], collections.OrderedDict(a=1), "Declare dict[str, int] in"),
    (collections.OrderedDict, {"a": 1}, "Declare dict in"),
    (collections.defaultdict[str, int], collections.defaultdict(int), "Declare dict[str, int] in"),
    (collections.Counter[str], collections.Counter("a"), "Declare dict[str, int] in"),
    (collections.deque[int], [1], "Declare list[int] in"),
    (Row, Row(a=1), "Declare dict in"),
    (Scalar, {}, "Declare a dataclass"),
]


@pytest.mark.parametrize(("annotation", "value", "hint"), UNREADABLE, ids=[str(each[0]) for each in UNREADABLE])
def test_a_declared_type_that_json_cannot_give_back_names_the_type_to_declare(
    annotation: Any, value: Any, hint: str
) -> None:
    said = refusal(annotation, value)
    assert "argument 'x' is declared as " in said
    assert ", which cannot be read from JSON\n  " + hint in said
    _, note = encode_result(value, annotation)
    assert "the return type of the task is declared as " in str(note)
    assert hint in str(note)
    with pytest.raises(Undecodable, match="cannot be read from JSON"):
        declared(annotation).decode_call(dumps_call("task", ({"a": 1},), {}))


def test_a_deque_for_a_declared_deque_is_one_message() -> None:
    assert refusal(collections.deque[int], collections.deque([1])).endswith("Pass list(x), and declare list[int].")


NUMBERS = [float("nan"), float("inf"), float("-inf"), Decimal("NaN"), Decimal("sNaN")]


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_a_number_that_json_does_not_have_is_refused_with_advice_that_works(number: float | Decimal) -> None:
    kind = type(number)
    said = refusal(kind, number)
    assert f"argument 'x' is {number}; JSON has no NaN and no infinity" in said
    assert said.endswith(f"Pass None, and allow it in the declared type: {kind.__name__} | None.")
    declared(kind | None).encode_call((None,), {})
    assert refusal(Any, [number]).endswith("Pass None.")
    declared(Any).encode_call(([None],), {})
    _, note = encode_result(number, kind)
    assert str(note).endswith(f"Return None, and allow it in the declared type: {kind.__name__} | None.")
    assert encode_result(None, kind | None).note is None
    assert str(encode_result(number).note).endswith("Return None.")


def test_an_infinite_decimal_is_stored_where_decimal_is_declared() -> None:
    signature = declared(Decimal)
    value = Decimal("-Infinity")
    assert signature.decode_call(signature.encode_call((value,), {})) == ((value,), {})
    assert refusal(Any, value).endswith("Declare its type in the task's signature: x: Decimal")


def test_text_that_reads_nan_is_text() -> None:
    signature = declared(Any)
    assert signature.decode_call(signature.encode_call((["NaN", None],), {})) == ((["NaN", None],), {})


def test_an_annotation_that_cannot_be_resolved_is_no_type_to_fit() -> None:
    with pytest.raises(BadSignature):
        declared("Nothing").encode_call((True,), {})
