"""A query says which jobs are meant, and never everything by accident."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from mainspring.common.ids import new_id
from mainspring.errors import InvalidOption
from mainspring.jobs.query import Query, parent_mark
from mainspring.states import Reason, State

MOMENT = datetime(2030, 1, 2, tzinfo=UTC)
CONDITIONS: dict[str, Any] = {
    "states": ["ready"],
    "queues": ["mail"],
    "tasks": ["send"],
    "tags": ["urgent"],
    "reasons": ["crashed"],
    "errors": ["ValueError"],
    "since": MOMENT,
    "until": MOMENT,
    "ended_before": MOMENT,
    "parent": new_id(),
}


def where(**conditions: Any) -> Query:
    """``Query.where`` as called without a type checker."""
    return Query.where(**conditions)


def test_a_query_without_conditions_is_empty() -> None:
    assert Query().empty
    assert Query.where().empty
    assert Query.where(states=None, tags=None).empty


@pytest.mark.parametrize("name", ["states", "queues", "tasks", "tags", "reasons", "errors"])
@pytest.mark.parametrize("nothing", [[], (), set(), iter(())])
def test_an_empty_list_matches_no_job(name: str, nothing: Any) -> None:
    with pytest.raises(InvalidOption, match=rf"(?s){name}=.*names nothing.*Leave {name} out"):
        where(**{**CONDITIONS, name: nothing})


@pytest.mark.parametrize("name", ["states", "queues", "tasks", "tags", "reasons", "errors"])
@pytest.mark.parametrize("value", [5, ["\ud800"], ["a\0b"]])
def test_values_that_no_store_can_search_are_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidOption, match=f"{name}="):
        where(**{name: value})


def test_a_query_made_without_where_is_normalised() -> None:
    loose: Any = {"states": ("dead",), "reasons": ("crashed",)}
    assert Query(**loose).checked() == Query(states=(State.DEAD,), reasons=(Reason.CRASHED,))
    full = where(**CONDITIONS)
    assert full.checked() == full
    assert Query.of(new_id()).checked().bare


@pytest.mark.parametrize("name", CONDITIONS)
def test_every_condition_makes_a_query_not_empty(name: str) -> None:
    query = where(**{name: CONDITIONS[name]})
    assert not query.empty
    assert not query.bare


def test_a_query_for_everything_is_explicit() -> None:
    assert not Query.everything().empty
    assert Query.everything().bare


def test_ids_alone_are_bare_and_not_empty() -> None:
    made = new_id()
    assert Query.of(made, str(made)).ids == (made.bytes, made.bytes)
    assert Query.of(made).bare
    assert not Query.of(made).empty
    assert not Query.of().empty, "nobody is not everybody"


def test_where_converts_values_to_those_of_the_store() -> None:
    parent = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
    query = Query.where(
        states=["ready", State.DEAD], reasons=["crashed"], tags=["a", "b"], parent=parent, since=MOMENT, until=MOMENT
    )
    assert query.states == (State.READY, State.DEAD)
    assert query.reasons == (Reason.CRASHED,)
    assert query.marks == ("a", "b", parent_mark(parent.bytes))
    assert parent_mark(parent.bytes) == "^01890a5dac96774bbcceb302099a8057"
    assert query.since == query.until == int(MOMENT.timestamp()) * 1_000_000


def test_where_accepts_any_iterable() -> None:
    assert Query.where(tags=(each for each in "ab"), queues={"mail"}) == Query(marks=("a", "b"), queues=("mail",))


@pytest.mark.parametrize("name", ["states", "queues", "tasks", "tags", "reasons", "errors"])
@pytest.mark.parametrize("parent", [None, new_id()])
def test_a_single_text_is_one_value_and_not_a_list_of_letters(name: str, parent: UUID | None) -> None:
    with pytest.raises(InvalidOption, match=rf"(?s){name}='ready'.*must be a list.*{name}=\['ready'\]"):
        where(**{name: "ready"}, parent=parent)


@pytest.mark.parametrize("name", ["states", "queues", "tasks", "tags", "reasons", "errors"])
def test_a_value_that_is_not_text_is_refused(name: str) -> None:
    with pytest.raises(InvalidOption, match="must be texts"):
        where(**{name: [ValueError]})


@pytest.mark.parametrize(("name", "known"), [("states", "retrying"), ("reasons", "out_of_memory")])
def test_an_unknown_value_is_refused_with_the_known_values(name: str, known: str) -> None:
    with pytest.raises(InvalidOption, match=known):
        where(**{name: ["broken"]})


@pytest.mark.parametrize("name", ["since", "until", "ended_before"])
def test_a_datetime_must_have_a_time_zone(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"{name}=.*time zone"):
        where(**{name: MOMENT.replace(tzinfo=None)})


def test_a_parent_must_be_an_id() -> None:
    with pytest.raises(InvalidOption, match="is not the id of a job"):
        Query.where(parent="nobody")
