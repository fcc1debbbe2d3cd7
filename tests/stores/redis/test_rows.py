"""The layout of a stored job, and the assembly of scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

import mainspring.stores.redis
from mainspring.states import State
from mainspring.stores.redis import rows
from mainspring.stores.redis.driver.constants import (
    FLAG_FOLLOWED,
    FLAG_LIMITED,
    FLAG_RECORD_APART,
    LARGE,
)
from mainspring.stores.redis.driver.scripts import script

SCRIPTS = sorted(
    path.stem for path in (Path(mainspring.stores.redis.__file__).parent / "lua").glob("*.lua") if path.stem[0] != "_"
)


@pytest.mark.parametrize("size", [0, 1, LARGE, LARGE + 1])
@pytest.mark.parametrize("more", [rows.RareFields(), rows.RareFields(b=[("gate", "", 2)], m=("a", "ü"), k=5, u="ff")])
def test_a_stored_job_is_read_as_it_was_written(size: int, more: rows.RareFields) -> None:
    raw = rows.new_head(
        group="größe\0shop.tasks.send".encode(), lane="größe/any".encode(), priority=-7, crash_limit=3, early=True,
        record=b"\xff" * size, more=more, followed=True,
    )  # fmt: skip
    found = rows.read(raw)
    assert (found.state, found.queue, found.task, found.lane) == (State.READY, "größe", "shop.tasks.send", "größe/any")
    assert (found.priority, found.crash_limit, found.epoch, found.worker) == (-7, 3, 1, None)
    assert (found.due, found.expires, found.started, found.ended) == (None, None, None, None)
    assert (found.more, found.result) == (more, b"")
    assert found.record == (b"" if size > LARGE else b"\xff" * size)
    assert bool(found.rest & FLAG_RECORD_APART) is (size > LARGE)
    assert found.ends & FLAG_FOLLOWED
    assert bool(found.ends & FLAG_LIMITED) is bool(more.b)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_numbers_for_its_constants(name: str) -> None:
    text = script(name).text.decode()
    assert "READY" not in text
    assert "local 4" not in text
    assert "'HSET'" in text or "'HGET" in text


def test_a_part_hides_names_that_it_does_not_export() -> None:
    """A script can have 200 local names at its top level."""
    text = script("turn").text.decode()
    assert "\nlocal claim\ndo\n" in text
    assert "\nfunction claim(" in text
    assert "\nlocal function claim_in_order(" in text


def test_a_part_with_a_star_is_created_when_it_is_needed() -> None:
    """The server makes every function of a script at each call: a turn without limits need not pay for theirs."""
    text = script("turn").text.decode()
    late = text.partition("\nlocal function with_limits()\n")[2].partition("\nend\nlocal ")[0]
    assert late.startswith("if capacity_of then return end\n")
    assert "\nfunction settle_lanes()" in text
    assert "capacity_of" in text.partition("\nlocal function with_limits()\n")[0].splitlines()[-1]


def test_bytes_of_times_compare_as_numbers() -> None:
    """The scripts compare tokens and positions without decoding them."""
    numbers = [0, 1, 2, 255, 256, 10**6, 2**40, 2**40 + 1, 2**53]
    assert sorted(map(rows.moment, reversed(numbers))) == list(map(rows.moment, numbers))
