"""Values that a declared type would lose in part: undeclared keys, digits, and the kind of a collection."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import attrs
import msgspec
import pydantic
import pytest
from typing_extensions import TypedDict

from mainspring.codec import Signature, decode_result, dumps_call
from mainspring.codec.losses import key_check
from mainspring.common.secret import Secret
from mainspring.errors import ArgumentError, Undecodable

BIG = 2**60 + 1


class Mail(TypedDict, total=False):
    to: str
    reply_to: str


@dataclass
class Order:
    id: int
    note: str = ""
    mail: Mail = field(default_factory=Mail)
    weight: float = 0.0
    total: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.total = self.id * 2

    @functools.cached_property
    def label(self) -> str:
        return f"order {self.id}"


class Box(msgspec.Struct, rename="camel"):
    box_count: int
    inner: Mail | None = None


class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Dog(msgspec.Struct, tag=True):
    name: str = ""


class Point(msgspec.Struct, array_like=True):
    x: int
    y: int = 0


@attrs.define
class Car:
    wheels: int = 4


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(default="", alias="fullName")
    mail: Mail = {}


class Open(pydantic.BaseModel, extra="ignore"):
    name: str = ""


class Node(msgspec.Struct):
    value: int = 0
    next: Node | None = None


class Pair(NamedTuple):
    first: Mail
    second: int


def declared(annotation: Any) -> Signature:
    def task(x: Any) -> Any: ...

    task.__annotations__ = {"x": annotation, "return": annotation}
    return Signature.of(task)


IGNORED: list[tuple[Any, Any, str]] = [
    (
        Mail,
        {"to": "a", "replyto": "b"},
        "'x' has the key 'replyto', which Mail does not declare; did you mean 'reply_to'?",
    ),
    (Mail | None, {"replyto": "b"}, "'x' has the key 'replyto'"),
    (list[Mail], [{}, {"replyto": "b"}], "'x[1]' has the key 'replyto'"),
    (dict[str, Mail], {"k": {"replyto": "b"}}, "\"x['k']\" has the key 'replyto'"),
    (tuple[int, Mail], (1, {"replyto": "b"}), "'x[1]' has the key 'replyto'"),
    (Pair, [{"replyto": "b"}, 2], "'x.first' has the key 'replyto'"),
    (Order, {"id": 1, "nte": "b"}, "'x' has the key 'nte', which Order does not declare; did you mean 'note'?"),
    (Order, {"id": 1, "mail": {"replyto": "b"}}, "'x.mail' has the key 'replyto'"),
    (Order, Order(1, mail={"replyto": "b"}), "'x.mail' has the key 'replyto'"),  # type: ignore[typeddict-unknown-key]  # the mistake
    (Box, {"boxCount": 1, "box_cuont": 2}, "'x' has the key 'box_cuont'"),
    (Box, {"boxCount": 1, "inner": {"replyto": 2}}, "'x.inner' has the key 'replyto'"),
    (
        list[Cat | Dog],
        [{"type": "Cat", "lives": 1}, {"type": "Dog", "nme": "Rex"}],
        "'x[1]' has the key 'nme', which Dog",
    ),
    (Point, [1, 2, 3], "'x' has 3 items, of which Point declares 2"),
    (Car, {"wheels": 4, "weels": 3}, "'x' has the key 'weels', which Car does not declare"),
    (Person, {"fullName": "A", "nam": "B"}, "'x' has the key 'nam', which Person does not declare"),
    (list[Person], [{"fullName": "A", "mail": {"replyto": "b"}}], "'x[0].mail' has the key 'replyto'"),
    (Node, {"next": {"next": {"vlue": 2}}}, "'x.next.next' has the key 'vlue', which Node does not declare"),
    (Annotated[Mail, "a note"], {"replyto": "b"}, "'x' has the key 'replyto'"),
    (dict[str, int] | list[Mail], [{"replyto": "b"}], "'x[0]' has the key 'replyto'"),
]


@pytest.mark.parametrize(("annotation", "value", "said"), IGNORED, ids=[each[2][:40] for each in IGNORED])
def test_a_key_that_the_declared_type_does_not_have_is_refused(annotation: Any, value: Any, said: str) -> None:
    """As an argument, as a stored argument of an older program, from a program without the task, and as a result."""
    signature = declared(annotation)
    with pytest.raises(ArgumentError) as error:
        signature.encode_call((value,), {})
    assert f"argument {said}" in str(error.value)
    stored = msgspec.json.encode({"x": value})
    for payload in (stored, dumps_call("t", (msgspec.json.decode(msgspec.json.encode(value)),), {})):
        with pytest.raises(Undecodable) as undecodable:
            signature.decode_call(payload)
        assert f"argument {said}" in str(undecodable.value)
    data, note = signature.encode_result(value)
    path = said.partition(" has ")[0].strip("'\"").replace("x", "result", 1)
    assert data is None
    assert str(note).startswith(f"{path} has ")


CHANGED: list[tuple[Any, Any, str]] = [
    (float, BIG, "'x' is an int that a float cannot hold"),
    (float | None, BIG, "'x' is an int that a float cannot hold"),
    (Order, {"id": 1, "weight": BIG}, "'x.weight' is an int that a float cannot hold"),
    (Order, Order(1, weight=BIG), "'x.weight' is an int that a float cannot hold"),
    (Collection[int], {1, 2}, "'x' is a set and would be read back as a list"),
    (Iterable[int], frozenset({1}), "'x' is a frozenset and would be read back as a list"),
    (dict[str, Sequence[int]], {"a": {1, 2}}, "\"x['a']\" is a set and would be read back as a list"),
]


@pytest.mark.parametrize(("annotation", "value", "said"), CHANGED)
def test_a_value_that_its_declared_type_would_change_is_refused(annotation: Any, value: Any, said: str) -> None:
    signature = declared(annotation)
    with pytest.raises(ArgumentError) as error:
        signature.encode_call((value,), {})
    assert f"argument {said}" in str(error.value)
    data, note = signature.encode_result(value)
    assert data is None
    assert said.partition("' is")[2] or said.partition('" is')[2] in str(note)


KEPT: list[tuple[Any, Any]] = [
    (Mail, {"to": "a"}),
    (Order, Order(1, "b", {"to": "a"}, 2.5)),
    (Order, {"id": 1, "total": 2}),
    (Order, {"note": "b", "id": 1}),
    (Box, {"inner": None, "boxCount": 1}),
    (list[Cat | Dog], [Cat(), {"type": "Dog", "name": "Rex"}]),
    (Point, [1]),
    (Person, {"fullName": "A"}),
    (Person, Person(fullName="A", mail={"to": "b"})),
    (Open, {"name": "A", "other": 1}),
    (Node, Node(1, Node(2))),
    (Secret[Mail], Secret(Mail(to="a"))),
    (dict[str, Any], {"replyto": "b"}),
    (float, 2**60),
    (int | float, BIG),
    (Sequence[int], (1, 2)),
    (set[int], [1, 2]),
    (Literal["a"] | None, "a"),
]


@pytest.mark.parametrize(("annotation", "value"), KEPT)
def test_a_value_that_its_declared_type_holds_is_accepted(annotation: Any, value: Any) -> None:
    signature = declared(annotation)
    data = signature.encode_call((value,), {})
    (back,), _ = signature.decode_call(data)
    again, note = signature.encode_result(back)
    assert note is None
    assert again is not None
    assert decode_result(again, annotation) == back


def test_a_cached_value_of_an_object_is_not_a_key() -> None:
    order = Order(3)
    assert order.label == "order 3"
    signature = declared(Order)
    assert signature.decode_call(signature.encode_call((order,), {})) == ((Order(3),), {})


def test_rest_arguments_are_checked_too() -> None:
    def task(*mails: Mail, **orders: Order) -> None: ...

    signature = Signature.of(task)
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: signature.encode_call(({}, {"replyto": "b"}), {}), "'mails[1]' has the key 'replyto'"),
        (lambda: signature.encode_call((), {"a": {"id": 1, "nte": ""}}), "'a' has the key 'nte'"),
        (lambda: signature.decode_call(b'{"*":[{},{"replyto":"b"}]}'), "'mails[1]' has the key 'replyto'"),
        (lambda: signature.decode_call(b'{"**":{"a":{"id":1,"nte":""}}}'), "has the key 'nte'"),
    ]
    for call, said in refused:
        with pytest.raises((ArgumentError, Undecodable)) as error:
            call()
        assert said in str(error.value)


def test_types_without_fields_are_not_looked_through_when_they_are_decoded() -> None:
    free: list[Any] = [int, dict[str, list[float]], Literal["x"] | None, Any, tuple[int, ...], Open, Secret[str]]
    keyed: list[Any] = [Order, Sequence[Order | None], dict[str, tuple[int, Mail]], Secret[Box], Node, Person, Pair]
    assert [key_check(each) for each in free] == [None] * len(free)
    assert None not in [key_check(each) for each in keyed]


STRICT: list[tuple[Any, bytes]] = [
    (Mail | None, b"null"),
    (list[Cat | Dog | None], b'[{"type":"Cat"},null,{"type":"Dog","name":"a"}]'),
    (dict[str, int] | list[Mail], b'{"a":1}'),
    (Point, b"[1]"),
    (Pair, b'[{"to":"a"},2]'),
    (Node, b'{"next":{"next":null,"value":2}}'),
    (Order | int | str, b'"text"'),
    (Annotated[Mail | None, "a note"], b'{"to":"a"}'),
    (Person, b'{"fullName":"A","mail":{"to":"b"}}'),
]


@pytest.mark.parametrize(("annotation", "data"), STRICT)
def test_the_strict_decoder_passes_what_loses_nothing(annotation: Any, data: bytes) -> None:
    """Its refusals are looked through in Python, which is slow: it must not refuse more than it has to."""
    check = key_check(annotation)
    assert check is not None
    assert not check(data)
