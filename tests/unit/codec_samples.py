"""Classes and functions with deferred annotations for the codec's tests."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import attrs
import msgspec
import pydantic

if TYPE_CHECKING:
    from decimal import Context as OnlyForCheckers


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


@dataclasses.dataclass
class Line:
    name: str
    price: int
    extra: Any = None


@dataclasses.dataclass
class Invoice:
    lines: list[Line]
    colour: Colour = Colour.RED


@dataclasses.dataclass
class SpecialLine(Line):
    more: int = 0


@dataclasses.dataclass(eq=False)
class Faceless:
    lines: list[Line]


@attrs.define
class Box:
    width: int
    tags: set[str] = attrs.field(factory=set)


class Point(msgspec.Struct):
    x: float
    y: float


class User(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    name: str
    born: pydantic.AwareDatetime | None = None
    alias: int = pydantic.Field(default=1, alias="theAlias")


class Admin(User):
    level: int = 1


class Movie(TypedDict):
    title: str
    year: int


class Pair(NamedTuple):
    left: int
    right: str


def later(invoice: Invoice, box: Box | None = None) -> Point:
    raise NotImplementedError


def unresolved(value: OnlyForCheckers) -> None: ...


def unresolved_return() -> OnlyForCheckers:
    raise NotImplementedError


def context_only_for_checkers(ctx: OnlyForCheckers, number: int) -> None: ...
