"""Declarations that another library would check, fill in or store are refused: here they would have no effect."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Annotated, Any

import annotated_types
import msgspec
import pydantic
import pytest

from mainspring import Depends, Mainspring
from mainspring.errors import ArgumentNotSerializable, BadSignature, JobDead, WrongArgument

LIMIT = 60


def task_of(app: Mainspring, declared: Any) -> Any:
    def take(x: Any) -> None: ...

    take.__annotations__ = {"x": declared, "return": None}
    return app.task(name="take")(take)


@pytest.mark.stores("sqlite")
class TestConstraints:
    @pytest.mark.parametrize(
        "declared",
        [
            Annotated[int, pydantic.Field(gt=5)],
            Annotated[int, annotated_types.Gt(5)],
            Annotated[str, pydantic.StringConstraints(min_length=3)],
            Annotated[str, pydantic.AfterValidator(str.upper)],
            list[pydantic.PositiveInt],
            dict[str, pydantic.PositiveInt | None],
        ],
    )
    def test_a_constraint_that_is_not_checked_is_refused(self, app: Mainspring, declared: Any) -> None:
        with pytest.raises(BadSignature, match=r"(?s)argument 'x' has the constraint .*not checked.*msgspec\.Meta"):
            task_of(app, declared).enqueue(1)

    def test_msgspec_checks_its_own(self, app: Mainspring) -> None:
        task = task_of(app, Annotated[int, msgspec.Meta(gt=5)])
        with pytest.raises(WrongArgument, match="expected int >= 6"):
            task.enqueue(1)
        task.enqueue(6)

    @pytest.mark.parametrize("note", ["of the order", pydantic.Field(description="of the order"), 7])
    def test_other_notes_are_accepted(self, app: Mainspring, note: Any) -> None:
        task_of(app, Annotated[int, note]).enqueue(1)


@pytest.mark.stores("sqlite")
class TestKeysOfMappings:
    @pytest.mark.parametrize(
        "declared", [dict[bool, str], dict[None, str], dict[tuple[int, int], str], list[dict[bool, str]]], ids=str
    )
    def test_keys_that_json_does_not_have_are_refused(self, app: Mainspring, declared: Any) -> None:
        """Every value but an empty one would be refused."""
        with pytest.raises(BadSignature, match=r"(?s)argument 'x' is declared as dict\[.*no such keys.*list\[tuple"):
            task_of(app, declared).enqueue({})

    @pytest.mark.parametrize("declared", [dict[int, str], dict[float, str], dict[str | None, str], dict[Any, str]])
    def test_other_keys_are_accepted(self, app: Mainspring, declared: Any) -> None:
        task_of(app, declared).enqueue({})


@dataclass
class Marker:
    """As frameworks declare their dependencies: ``fastapi.params.Depends`` is such a class."""

    dependency: Any = None


def marker(module: str, name: str) -> Any:
    return type(name, (Marker,), {"__module__": module})()


@pytest.mark.stores("sqlite")
class TestMarkers:
    @pytest.mark.parametrize(
        ("module", "name"), [("fastapi.params", "Depends"), ("fastapi.params", "Security"), ("x", "TaskiqDepends")]
    )
    def test_a_dependency_of_another_framework_is_refused(self, app: Mainspring, module: str, name: str) -> None:
        """The task would get the marker as its argument."""
        found = marker(module, name)

        def by_default(n: int, db: Any = found) -> None: ...
        def annotated(n: int, db: Any) -> None: ...
        def session(db: Any = found) -> None: ...
        def nested(n: int, db: Any = Depends(session)) -> None: ...

        annotated.__annotations__["db"] = Annotated[Any, found]
        match = (
            rf"(?s)argument 'db' is declared with {module.partition('.')[0]}\.{name}.*from mainspring import Depends"
        )
        for fn in (by_default, annotated, nested):
            with pytest.raises(BadSignature, match=match):
                app.task(fn)

    def test_a_field_as_a_default_is_refused(self, app: Mainspring) -> None:
        def take(n: int = pydantic.Field(default=5, gt=1)) -> None: ...

        with pytest.raises(BadSignature, match=r"(?s)argument 'n' is declared with pydantic\.FieldInfo.*plain default"):
            app.task(take)

    def test_other_objects_as_defaults_are_accepted(self, app: Mainspring) -> None:
        class Model(pydantic.BaseModel):
            n: int = 1

        def take(model: Model = Model(), secret: Any = pydantic.SecretStr("x"), kind: Any = Marker) -> None: ...  # noqa: B008

        app.task(take)


class Order(pydantic.BaseModel):
    id: int
    _note: str = pydantic.PrivateAttr(default="")
    _cache: list[int] = pydantic.PrivateAttr(default_factory=list)
    _twice: int = 0
    _lock: Any = pydantic.PrivateAttr(default_factory=threading.Lock)

    def model_post_init(self, _: Any) -> None:
        self._twice = 2 * self.id


class JobBatch(pydantic.BaseModel):
    orders: list[Order]


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    id: int


class TestPrivateAttributes:
    """JSON has only the fields of a model."""

    def test_a_private_attribute_that_was_set_is_refused(self, app: Mainspring) -> None:
        @app.task(name="ship")
        def ship(batch: JobBatch) -> int:
            return len(batch.orders)

        for name, value in (("_note", "fragile"), ("_cache", [1]), ("_twice", 7)):
            order = Order(id=1)
            setattr(order, name, value)
            with pytest.raises(ArgumentNotSerializable, match=rf"(?s)'batch\.orders\[1\]\.{name}' is .*private attrib"):
                ship.enqueue(JobBatch(orders=[Order(id=1), order]))
        with app.worker():
            assert ship.enqueue(JobBatch(orders=[Order(id=1), Order(id=2)])).result(timeout=LIMIT) == 2

    def test_a_result_too(self, app: Mainspring) -> None:
        @app.task(name="make")
        def make(note: str) -> Order:
            order = Order(id=1)
            order._note = note
            return order

        with app.worker():
            assert make.enqueue("").result(timeout=LIMIT).id == 1
            with pytest.raises(JobDead, match=r"result\._note is 'fragile' and would be read back as ''"):
                make.enqueue("fragile").result(timeout=LIMIT)

    def test_an_extra_attribute_that_would_change_is_refused(self, app: Mainspring) -> None:
        @app.task(name="ship")
        def ship(order: Open) -> None: ...

        ship.enqueue(Open(id=1, items=[1, 2]))  # type: ignore[call-arg]  # it allows other names
        with pytest.raises(
            ArgumentNotSerializable, match=r"'order\.items' is a tuple and would be read back as a list"
        ):
            ship.enqueue(Open(id=1, items=(1, 2)))  # type: ignore[call-arg]
