"""The door is made from the contract: each method has its failpoints, a deadline and translated errors."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
from typing import Any, cast, get_type_hints

import pytest

from mainspring.common import failpoints
from mainspring.errors import StoreUnavailable
from mainspring.stores.base import Engine, Store
from mainspring.stores.door import DEADLINES, MIGRATION, Door, contract_methods

METHODS = sorted(contract_methods())


class FakeEngine:
    """An engine that notes every call, and replies with the call, an error, or never."""

    engine = "fake"
    url = "fake://"

    def __init__(self, notes: list[Any], error: Exception | None = None, *, hangs: bool = False) -> None:
        self.notes = notes
        self.error = error
        self.hangs = hangs

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            self.notes.append((name, args, options))
            if self.hangs:
                await asyncio.Event().wait()
            if self.error:
                raise self.error
            return name

        return call

    def enqueue_now(self, batch: Any, connection: Any = None) -> Any:
        self.notes.append(("enqueue_now", (batch, connection), {}))
        if self.error:
            raise self.error
        return []

    def translate(self, error: Exception) -> Exception | None:
        return StoreUnavailable("translated") if isinstance(error, OSError) else None


def door(notes: list[Any], error: Exception | None = None, *, hangs: bool = False, deadline: float = 10.0) -> Door:
    return Door(cast("Engine", FakeEngine(notes, error, hangs=hangs)), deadline=deadline)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of the engine and the failpoints, in their order."""
    found: list[Any] = []
    monkeypatch.setattr(failpoints, "hit", found.append)
    return found


def arguments(name: str) -> tuple[list[Any], dict[str, Any]]:
    """A value for each argument of a method of the contract."""
    args: list[Any] = []
    options: dict[str, Any] = {}
    for parameter in list(inspect.signature(getattr(Store, name)).parameters.values())[1:]:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            options[parameter.name] = object()
        else:
            args.append(object())
    return args, options


def test_the_door_defines_every_public_method_of_the_contract() -> None:
    public = {name for name, value in vars(Store).items() if inspect.isfunction(value) and not name.startswith("_")}
    assert public == {*METHODS, "enqueue_now", "documents_now"}
    assert public <= set(vars(Door))


@pytest.mark.asyncio
@pytest.mark.parametrize("name", METHODS)
async def test_a_call_reaches_the_engine_between_its_failpoints(notes: list[Any], name: str) -> None:
    args, options = arguments(name)
    assert await getattr(door(notes), name)(*args, **options) == name
    assert notes == [f"{name}.before", (name, tuple(args), options), f"{name}.after"]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", METHODS)
async def test_an_error_of_the_driver_is_translated(notes: list[Any], name: str) -> None:
    args, options = arguments(name)
    with pytest.raises(StoreUnavailable, match="translated"):
        await getattr(door(notes, OSError("gone")), name)(*args, **options)
    with pytest.raises(ZeroDivisionError):
        await getattr(door(notes, ZeroDivisionError()), name)(*args, **options)
    assert f"{name}.after" not in notes


@pytest.mark.asyncio
@pytest.mark.parametrize("name", sorted({*METHODS} - {*DEADLINES}))
async def test_a_call_without_an_answer_ends_at_the_deadline(notes: list[Any], name: str) -> None:
    args, options = arguments(name)
    with pytest.raises(StoreUnavailable, match=rf"{name}: fake:// gave no answer in 0.01 s"):
        await getattr(door(notes, hangs=True, deadline=0.01), name)(*args, **options)


def test_a_migration_has_a_deadline_of_its_own() -> None:
    assert {name: deadlines.seconds for name, deadlines in DEADLINES.items()} == {"migrate": MIGRATION}


def test_the_blocking_enqueue_passes_the_failpoints_of_enqueue(notes: list[Any]) -> None:
    batch: Any = object()
    assert door(notes).enqueue_now(batch) == []
    assert notes == ["enqueue.before", ("enqueue_now", (batch, None), {}), "enqueue.after"]
    with pytest.raises(StoreUnavailable, match="translated"):
        door(notes, OSError("gone")).enqueue_now(batch)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_shows_the_signature_and_docstring_of_the_contract(name: str) -> None:
    method, contract = getattr(Door, name), getattr(Store, name)
    assert inspect.signature(method) == inspect.signature(contract)
    assert get_type_hints(method) == get_type_hints(contract)
    assert inspect.iscoroutinefunction(method)
    assert method.__doc__
    assert method.__doc__ == contract.__doc__
    assert method.__qualname__ == f"Door.{name}"


def test_help_shows_the_methods() -> None:
    text = pydoc.plain(pydoc.render_doc(Door))
    assert "async turn(self, turn: 'Turn') -> 'TurnResult'" in text
    assert "hold(self, holder: 'bytes', buckets: 'Sequence[Bucket]'" in text
