"""A call is bound like Python binds it, checked by declared type, and comes back equal or is refused by path."""

from __future__ import annotations

import collections.abc
import contextlib
import json
import math
import threading
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NewType
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.codec import Signature, dumps_call
from mainspring.codec.annotations import _parts_of
from mainspring.errors import (
    ArgumentError,
    ArgumentNotSerializable,
    BadSignature,
    MissingArgument,
    PayloadTooDeep,
    PayloadTooLarge,
    Undecodable,
    UnknownArgument,
    WrongArgument,
)
from tests.unit import codec_samples as samples
from tests.unit.codec_samples import (
    Admin,
    Box,
    Colour,
    Faceless,
    Invoice,
    Level,
    Line,
    Movie,
    Pair,
    Point,
    SpecialLine,
    User,
)

UserId = NewType("UserId", int)


def of_type(declared: Any) -> Signature:
    def task(value: Any) -> None: ...

    task.__annotations__["value"] = declared
    return Signature.of(task)


def through(declared: Any, value: Any) -> Any:
    signature = of_type(declared)
    args, kwargs = signature.decode_call(signature.encode_call((value,), {}))
    assert kwargs == {}
    return args[0]


def send(to: str, subject: str = "hi", *, copies: int = 1) -> None: ...


SEND = Signature.of(send, task="shop.send")


class TestTypes:
    @pytest.mark.row("Q12")
    @pytest.mark.parametrize(
        ("declared", "value"),
        [
            (str, "grüße 🎉 \x01 \\u0000"),
            (int, -(2**63)),
            (int, 2**200),
            (float, 1e-300),
            (bool, True),
            (None, None),
            (list[int], [1, 2]),
            (list, [1, "a", None, [1.5]]),
            (dict[str, int], {"a": 1}),
            (dict[int, str], {1: "a"}),
            (dict[UUID, date], {UUID(int=1): date(2030, 1, 1)}),
            (dict, {"a": {"b": []}}),
            (tuple[int, str], (1, "a")),
            (tuple[int, ...], (1, 2, 3)),
            (set[str], {"a", "b"}),
            (frozenset[int], frozenset({1, 2})),
            (int | None, None),
            (int | str | None, "x"),
            (list[int | None], [1, None]),
            (Literal["a", "b"], "b"),
            (Colour, Colour.BLUE),
            (Level, Level.LOW),
            (dict[str, Colour], {"x": Colour.RED}),
            (datetime, datetime(2030, 1, 2, 3, 4, 5, 678, tzinfo=UTC)),
            (datetime, datetime(2030, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=-7)))),
            (datetime, datetime(2030, 7, 2, tzinfo=ZoneInfo("Europe/Kyiv"))),
            (datetime, datetime(2030, 1, 2, 3, 4, 5)),  # noqa: DTZ001 - a naive one stays naive
            (date, date(2030, 1, 2)),
            (time, time(1, 2, 3)),
            (timedelta, timedelta(days=-3, microseconds=7)),
            (Decimal, Decimal("1.10")),
            (UUID, UUID(int=7)),
            (bytes, b"\xff\0"),
            (Line, Line("a", 1, {"x": [1]})),
            (Invoice, Invoice([Line("a", 1)], Colour.BLUE)),
            (Box, Box(3, {"a"})),
            (Point, Point(1.5, 2.0)),
            (Movie, {"title": "Alien", "year": 1979}),
            (Pair, Pair(1, "a")),
            (User, User(name="Ann", born=datetime(1990, 1, 1, tzinfo=UTC), theAlias=5)),
            (User | None, None),
            (list[User], [User(name="Ann"), User(name="Bob")]),
            (dict[str, User], {"a": User(name="Ann")}),
            (Path, Path("/srv/data")),
            (PurePosixPath, PurePosixPath("a/b")),
            (UserId, 7),
            (Annotated[int, msgspec.Meta(ge=1)], 7),
            (collections.abc.Mapping[str, int], {"a": 1}),
            (collections.abc.Iterable[int], [1, 2]),
            (Any, {"a": [1, 2.5, "x", None, True, {"b": {}}]}),
            (object, [1]),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_value_of_its_declared_type_comes_back_equal(self, declared: Any, value: Any) -> None:
        back = through(declared, value)
        assert back == value
        assert type(back) is type(value)

    @pytest.mark.parametrize(
        ("declared", "value", "held"),
        [
            (float, 1, 1.0),
            (collections.abc.Sequence[int], (1, 2), [1, 2]),
            (collections.abc.Iterable[int], (1, 2), [1, 2]),
            (tuple[int, ...], [1, 2], (1, 2)),
            (set[int], [1, 2, 2], {1, 2}),
            (Colour, "red", Colour.RED),
            (Line, {"name": "a", "price": 1}, Line("a", 1)),
            (Point, {"x": 1, "y": 2}, Point(1.0, 2.0)),
            (User, {"name": "Ann"}, User(name="Ann")),
            (Box, {"width": 2}, Box(2)),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_value_that_converts_to_the_declared_type_without_loss_is_accepted(
        self, declared: Any, value: Any, held: Any
    ) -> None:
        assert through(declared, value) == held

    def test_subclasses_of_plain_types_are_stored_as_their_base(self) -> None:
        class Safe(str):
            __slots__ = ()

        assert through(str, Safe("a")) == "a"
        assert through(Any, [Safe("a")]) == ["a"]

    def test_a_class_without_equality_is_compared_by_its_fields(self) -> None:
        back = through(Faceless, Faceless([Line("a", 1)]))
        assert back.lines == [Line("a", 1)]
        with pytest.raises(ArgumentNotSerializable, match=r"value\.lines\[0\]\.extra"):
            through(Faceless, Faceless([Line("a", 1, {1, 2})]))

    @pytest.mark.row("Q12")
    @pytest.mark.parametrize(
        ("declared", "value", "message"),
        [
            (str, 5, "argument 'value' expected str, got int"),
            (str, datetime(2030, 1, 1, tzinfo=UTC), "argument 'value' expected str, got datetime"),
            (str, UUID(int=1), "expected str, got uuid"),
            (str, None, "expected str, got None"),
            (str, object(), "expected str, got object"),
            (int, "5", "expected int, got str"),
            (bool, 1, "expected bool, got int"),
            (int, 1.0, "expected int, got float"),
            (datetime, "2030-01-01T00:00:00Z", "expected datetime, got str"),
            (UUID, "00000000-0000-0000-0000-000000000001", "expected uuid, got str"),
            (list[int], [1, "2"], r"argument 'value\[1\]' expected int, got str"),
            (dict[str, list[int]], {"a": [None]}, r"expected int, got None"),
            (Invoice, Invoice([Line("a", "1")]), r"argument 'value\.lines\[0\]\.price' expected int, got str"),  # type: ignore[arg-type]  # the mistake under test
            (Invoice, {"lines": []} | {"color": 1} | {"lines": 1}, r"value\.lines' expected list\[Line\], got int"),
            (Line, {"name": "a"}, "missing required field price"),
            (Literal["a", "b"], "c", "invalid enum value"),
            (Colour, "green", "invalid enum value"),
            (Annotated[int, msgspec.Meta(ge=1)], 0, ">= 1"),
            (User, {"name": 5}, "name"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_wrong_value_is_refused_naming_argument_and_path(self, declared: Any, value: Any, message: str) -> None:
        with pytest.raises(WrongArgument, match=f"(?i){message}") as caught:
            through(declared, value)
        assert caught.value.argument == "value"
        assert caught.value.path.startswith("value")
        assert str(caught.value).startswith("task(value=...): ")

    @pytest.mark.parametrize(
        ("declared", "value", "path"),
        [
            (Any, {1, 2}, "value"),
            (Any, (1, 2), "value"),
            (Any, [datetime(2030, 1, 1, tzinfo=UTC)], "value[0]"),
            (Any, {"a": [Decimal(1)]}, "value['a'][0]"),
            (Any, {1: "a"}, "value"),
            (Any, b"x", "value"),
            (Any, Line("a", 1), "value"),
            (Any, User(name="Ann"), "value"),
            (Any, UUID(int=1), "value"),
            (dict[str, Any], {"a": {1, 2}}, "value['a']"),
            (list, [(1, 2)], "value[0]"),
            (Line, Line("a", 1, (1, 2)), "value.extra"),
            (Line, SpecialLine("a", 1, more=5), "value"),
            (User, Admin(name="Ann"), "value"),
            (float, math.nan, "value"),
            (list[float], [1.0, math.inf], "value[1]"),
            (float | None, -math.inf, "value"),
            (Any, {"a": math.nan}, "value['a']"),
            (Point, Point(math.nan, 1), "value.x"),
            (Any, object(), "value"),
            (Any, [threading.Lock()], "value[0]"),
            (Any, lambda: 1, "value"),
            (Any, Line, "value"),
            (threading.Event, threading.Event(), "value"),
            (str, "a\ud800", "value"),
            (list[str], ["a", "\udcff"], "value[1]"),
            (Line, Line("\ud800", 1), "value.name"),
            (str, "a\0b", "value"),
            (dict[str, str], {"a": "\0"}, "value['a']"),
            (dict[str, str], {"\0": "a"}, "value key '\\x00'"),
            (Decimal, Decimal("NaN"), "value"),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_a_value_that_would_not_come_back_equal_is_refused_with_its_path(
        self, declared: Any, value: Any, path: str
    ) -> None:
        with pytest.raises(ArgumentNotSerializable) as caught:
            through(declared, value)
        assert caught.value.path == path
        assert caught.value.hint

    def test_text_that_looks_like_an_escaped_nul_is_accepted(self) -> None:
        assert through(str, "\\u0000") == "\\u0000"

    def test_the_hint_of_an_object_with_an_id_is_to_pass_the_id(self) -> None:
        class Order:
            id = 5

        with pytest.raises(ArgumentNotSerializable, match=r"is an Order, which cannot be stored\n  Pass value\.id"):
            through(Any, Order())

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
            max_leaves=20,
        )
    )
    def test_plain_json_under_any_comes_back_equal_or_is_refused(self, value: Any) -> None:
        try:
            assert through(Any, value) == value
        except ArgumentNotSerializable:
            shown = repr(value)
            assert any(sign in shown for sign in ("nan", "inf", "\\ud", "\\x00"))


class TestBinding:
    @pytest.mark.parametrize(
        ("args", "kwargs", "payload", "call"),
        [
            (("a",), {}, {"to": "a"}, (("a", "hi"), {"copies": 1})),
            (("a", "b"), {}, {"to": "a", "subject": "b"}, (("a", "b"), {"copies": 1})),
            ((), {"to": "a", "copies": 3}, {"to": "a", "copies": 3}, (("a", "hi"), {"copies": 3})),
        ],
    )
    def test_a_call_binds_like_python_and_stores_only_what_was_given(
        self, args: Any, kwargs: Any, payload: Any, call: Any
    ) -> None:
        data = SEND.encode_call(args, kwargs)
        assert json.loads(data) == payload
        assert SEND.decode_call(data) == call

    def test_star_arguments_are_carried_with_their_types(self) -> None:
        def task(first: int, /, *rest: date, flag: bool = False, **named: Decimal) -> None: ...

        signature = Signature.of(task)
        args, kwargs = (1, date(2030, 1, 1), date(2030, 1, 2)), {"flag": True, "x": Decimal("1.5"), "first": Decimal(2)}
        assert signature.decode_call(signature.encode_call(args, kwargs)) == (args, kwargs)
        assert signature.decode_call(signature.encode_call((1,), {})) == ((1,), {"flag": False})
        with pytest.raises(WrongArgument, match=r"argument 'rest\[1\]' expected date, got int"):
            signature.encode_call((1, date(2030, 1, 1), 5), {})
        with pytest.raises(WrongArgument, match="argument 'x' expected Decimal, got str"):
            signature.encode_call((1,), {"x": "1"})

    def test_the_context_is_left_out(self) -> None:
        def task(ctx: Any, number: int) -> None: ...

        signature = Signature.of(task, skip_context=True)
        assert signature.encode_call((5,), {}) == b'{"number":5}'
        assert signature.decode_call(b'{"number":5}') == ((5,), {})
        assert dict(signature.parameters) == {"number": int}

    @pytest.mark.parametrize(
        ("args", "kwargs", "error", "message"),
        [
            ((), {}, MissingArgument, r"shop\.send\(\.\.\.\): argument 'to' missing"),
            (("a",), {"subjct": "x"}, UnknownArgument, "no argument 'subjct'; did you mean 'subject'"),
            (("a", "b", 3), {}, UnknownArgument, "takes 2 positional arguments, 3 were given"),
            (("a",), {"to": "b"}, WrongArgument, "argument 'to' is given twice"),
            (("a", None), {}, WrongArgument, "argument 'subject' expected str, got None"),
        ],
    )
    def test_a_call_that_does_not_bind_is_refused(self, args: Any, kwargs: Any, error: type, message: str) -> None:
        with pytest.raises(error, match=message) as caught:
            SEND.encode_call(args, kwargs)
        assert isinstance(caught.value, ArgumentError)
        assert isinstance(caught.value, TypeError)
        assert caught.value.task == "shop.send"

    def test_a_positional_only_parameter_cannot_be_named(self) -> None:
        def task(number: int, /) -> None: ...

        with pytest.raises(UnknownArgument, match="only be given by position"):
            Signature.of(task).encode_call((), {"number": 1})

    def test_a_default_is_the_functions_own_object_and_can_be_unstorable(self) -> None:
        mark = object()

        def task(number: int = 1, items: Any = mark, more: list[int] = [1]) -> None: ...  # noqa: B006 - under test

        signature = Signature.of(task)
        data = signature.encode_call((), {})
        assert data == b"{}"
        args, _ = signature.decode_call(data)
        assert args == (1, mark, [1])
        assert args[1] is mark

    def test_parameters_can_have_any_name(self) -> None:
        def task(self: int, count: int, __struct_fields__: int, mro: str = "x") -> None: ...

        signature = Signature.of(task)
        assert signature.decode_call(signature.encode_call((1, 2, 3), {})) == ((1, 2, 3, "x"), {})

    def test_methods_and_callable_objects_have_signatures(self) -> None:
        class Sender:
            def send(self, to: str) -> None: ...

            def __call__(self, number: int) -> None: ...

        assert Signature.of(Sender().send).encode_call(("a",), {}) == b'{"to":"a"}'
        assert Signature.of(Sender()).encode_call((1,), {}) == b'{"number":1}'


class TestByName:
    """A producer that knows only the task's name."""

    @pytest.mark.parametrize(
        ("args", "kwargs", "call"),
        [
            ((), {"to": "a"}, (("a", "hi"), {"copies": 1})),
            (("a",), {}, (("a", "hi"), {"copies": 1})),
            (("a", "b"), {"copies": 2}, (("a", "b"), {"copies": 2})),
        ],
    )
    def test_arguments_by_name_are_bound_when_they_are_read(self, args: Any, kwargs: Any, call: Any) -> None:
        assert SEND.decode_call(dumps_call("shop.send", args, kwargs)) == call

    def test_star_arguments_by_name_are_bound_too(self) -> None:
        def task(first: int = 0, *rest: date, **named: Decimal) -> None: ...

        signature = Signature.of(task)
        day = date(2030, 1, 1)
        assert signature.decode_call(dumps_call("t", (1, "2030-01-01"), {"x": "1.5"})) == (
            (1, day),
            {"x": Decimal("1.5")},
        )
        assert signature.decode_call(dumps_call("t", (), {"x": "1.5"})) == ((0,), {"x": Decimal("1.5")})

    @pytest.mark.parametrize(
        ("args", "kwargs"), [((1,), {}), ((), {}), (("a", "b", "c"), {}), ((), {"to": "a", "x": 1})]
    )
    def test_arguments_by_name_that_do_not_bind_are_undecodable(self, args: Any, kwargs: Any) -> None:
        with pytest.raises(Undecodable):
            SEND.decode_call(dumps_call("shop.send", args, kwargs))

    def test_arguments_by_name_must_be_plain_json(self) -> None:
        with pytest.raises(ArgumentNotSerializable, match=r"shop\.send\(when=\.\.\.\)"):
            dumps_call("shop.send", (), {"when": date(2030, 1, 1)})
        with pytest.raises(PayloadTooLarge):
            dumps_call("shop.send", ("a" * 10**6,), {})


class TestLimits:
    def test_a_payload_over_the_limit_is_refused_with_size_and_limit(self) -> None:
        SEND.encode_call(("a" * 999_900,), {})
        with pytest.raises(PayloadTooLarge, match=r"1,000,009 bytes, the limit is 1,000,000") as caught:
            SEND.encode_call(("a" * 1_000_000,), {})
        assert (caught.value.size, caught.value.limit) == (1_000_009, 1_000_000)
        with pytest.raises(PayloadTooLarge, match="the limit is 10"):
            Signature.of(send, task="shop.send", limit=10).encode_call(("a" * 20,), {})

    @staticmethod
    def nested(depth: int) -> Any:
        value: Any = "[[[{{{" * 50  # brackets in text are not depth
        for level in range(depth):
            value = [value] if level % 2 else {"k": value}
        return value

    def test_64_levels_pass_and_65_are_refused(self) -> None:
        assert through(Any, self.nested(64)) == self.nested(64)
        with pytest.raises(PayloadTooDeep, match="argument 'value' is nested deeper than 64") as caught:
            through(Any, self.nested(65))
        assert caught.value.argument == "value"

    def test_a_wide_value_is_not_deep(self) -> None:
        value = [{"a": [1]}] * 1000
        assert through(Any, value) == value

    def test_a_value_that_contains_itself_or_is_endless_is_refused(self) -> None:
        ring: list[Any] = []
        ring.append(ring)
        for value in (ring, self.nested(50_000)):
            with pytest.raises(PayloadTooDeep):
                through(Any, value)


class TestStoredData:
    @pytest.mark.parametrize(
        ("data", "why"),
        [
            (b"", "(?i)truncated"),
            (b"\xff", "malformed"),
            (b"[]", "(?i)expected object, got array|expected 'object', got 'array'"),
            (b"{}", "missing required field 'to'"),
            (b'{"to":5}', "Expected 'str', got 'int'"),
            (b'{"to":"a","gone":1}', "unknown field 'gone'"),
            (b'{"to":' + b"[" * 100_000, "."),
        ],
    )
    def test_data_that_does_not_fit_the_code_is_undecodable(self, data: bytes, why: str) -> None:
        with pytest.raises(Undecodable, match=why) as caught:
            SEND.decode_call(data)
        assert "shop.send" in str(caught.value)

    def test_deep_data_under_any_is_undecodable_not_a_crash(self) -> None:
        with pytest.raises(Undecodable):
            of_type(Any).decode_call(b'{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}")

    @given(st.binary(max_size=60))
    def test_any_bytes_are_decoded_or_undecodable(self, data: bytes) -> None:
        """Any other exception fails the test."""
        with contextlib.suppress(Undecodable):
            SEND.decode_call(data)

    def test_types_come_from_the_signature_never_from_the_payload(self) -> None:
        args, _ = of_type(Any).decode_call(b'{"value":{"__class__":"os.system","type":"Line","name":"a","price":1}}')
        assert type(args[0]) is dict

    def test_a_record_that_carries_the_payload_raw_can_be_decoded(self) -> None:
        assert SEND.decode_call(msgspec.Raw(b'{"to":"a"}'))[0] == ("a", "hi")


class TestAnnotations:
    def test_deferred_annotations_are_resolved_at_first_use(self) -> None:
        signature = Signature.of(samples.later)
        args = (Invoice([Line("a", 1)]), Box(1))
        assert signature.decode_call(signature.encode_call(args, {})) == (args, {})
        assert signature.returns is Point

    def test_a_name_defined_later_is_found(self) -> None:
        space: dict[str, Any] = {}
        exec("def task(value: 'Later') -> None: ...", space)
        signature = Signature.of(space["task"])
        space["Later"] = int
        assert signature.encode_call((5,), {}) == b'{"value":5}'

    def test_a_local_class_in_the_closure_is_found(self) -> None:
        class Local(msgspec.Struct):
            x: int

        def task(value: Local) -> Local:
            return Local(value.x)

        assert Signature.of(task).encode_call((Local(1),), {}) == b'{"value":{"x":1}}'

    def test_an_annotation_that_cannot_be_resolved_is_a_clear_error(self) -> None:
        with pytest.raises(BadSignature, match=r"task 'unresolved': argument 'value' .*OnlyForCheckers") as caught:
            Signature.of(samples.unresolved).encode_call((1,), {})
        assert "TYPE_CHECKING" in caught.value.hint
        with pytest.raises(BadSignature, match="its return type"):
            Signature.of(samples.unresolved_return).check()
        with pytest.raises(Undecodable):
            Signature.of(samples.unresolved).decode_call(b'{"value":1}')

    def test_the_annotation_of_the_context_can_be_unimportable(self) -> None:
        signature = Signature.of(samples.context_only_for_checkers, skip_context=True)
        assert signature.encode_call((5,), {}) == b'{"number":5}'

    @pytest.mark.parametrize("declared", [datetime | str, Line | Invoice, int | User])
    def test_alternatives_that_json_cannot_tell_apart_are_refused_naming_the_parameter(self, declared: Any) -> None:
        with pytest.raises(BadSignature, match=r"argument 'value' is declared as .* JSON cannot represent") as caught:
            of_type(declared).encode_call((1,), {})
        assert caught.value.argument == "value"


def test_an_alias_that_contains_itself_is_walked_once() -> None:
    class Json:
        """As ``type Json = dict[str, Json] | int`` of Python 3.12."""

    Json.__value__ = dict[str, Json] | int  # type: ignore[attr-defined]  # see above
    assert list(_parts_of(Json)) == [dict[str, Json] | int, dict[str, Json], str, int]
