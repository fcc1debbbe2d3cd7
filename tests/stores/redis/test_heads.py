"""The layout of a stored job, and how scripts are put together."""

from __future__ import annotations

from pathlib import Path

import pytest

import mainspring.stores.redis
from mainspring.states import State
from mainspring.stores.redis import heads
from mainspring.stores.redis.scripts import script

SCRIPTS = sorted(
    path.stem for path in (Path(mainspring.stores.redis.__file__).parent / "lua").glob("*.lua") if path.stem[0] != "_"
)


@pytest.mark.parametrize("size", [0, 1, heads.LARGE, heads.LARGE + 1])
@pytest.mark.parametrize("more", [heads.More(), heads.More(b=[("gate", "", 2)], m=("a", "ü"), k=5, u="ff")])
def test_what_is_written_is_read(size: int, more: heads.More) -> None:
    raw = heads.new_head(
        group="größe\0shop.tasks.send".encode(), lane="größe/any".encode(), priority=-7, crash_limit=3, early=True,
        record=b"\xff" * size, more=more, followed=True,
    )  # fmt: skip
    found = heads.read(raw)
    assert (found.state, found.queue, found.task, found.lane) == (State.READY, "größe", "shop.tasks.send", "größe/any")
    assert (found.priority, found.crash_limit, found.epoch, found.worker) == (-7, 3, 1, None)
    assert (found.due, found.expires, found.started, found.ended) == (None, None, None, None)
    assert (found.more, found.result) == (more, b"")
    assert found.record == (b"" if size > heads.LARGE else b"\xff" * size)
    assert bool(found.rest & heads.LIES_APART) is (size > heads.LARGE)
    assert found.ends & heads.IS_FOLLOWED
    assert bool(found.ends & heads.IS_LIMITED) is bool(more.b)


@pytest.mark.parametrize(("marks", "is_one"), [((), False), (("a", "^b", "@c"), False), (("a", "^@b"), True)])
def test_a_job_of_a_part_says_so_in_a_byte(marks: tuple[str, ...], is_one: bool) -> None:
    """So an ack of any other need not look at its marks."""
    raw = heads.new_head(
        group=b"q\0t", lane=b"q/any", priority=0, crash_limit=3, early=False, record=b"", more=heads.More(m=marks)
    )
    assert bool(heads.read(raw).ends & heads.IS_OF_PART) is is_one


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_has_numbers_for_its_constants(name: str) -> None:
    text = script(name).text.decode()
    assert "READY" not in text
    assert "local 4" not in text
    assert "'HSET'" in text or "'HGET" in text


def test_a_part_keeps_to_itself_what_it_does_not_give() -> None:
    """A script may have 200 names at its top."""
    text = script("turn").text.decode()
    assert "\nlocal claim\ndo\n" in text
    assert "\nfunction claim(" in text
    assert "\nlocal function claim_merged(" in text


def test_a_part_with_a_star_is_made_when_it_is_asked_for() -> None:
    """The server makes every function of a script at each call: a turn without limits need not pay for theirs."""
    text = script("turn").text.decode()
    late = text.partition("\nlocal function with_rooms()\n")[2].partition("\nend\nlocal ")[0]
    assert late.startswith("if room_of then return end\n")
    assert "\nfunction settle_lanes()" in text
    assert "room_of" in text.partition("\nlocal function with_rooms()\n")[0].splitlines()[-1]


def test_bytes_of_moments_compare_as_numbers() -> None:
    """The scripts compare tokens and places without reading them."""
    numbers = [0, 1, 2, 255, 256, 10**6, 2**40, 2**40 + 1, 2**53]
    assert sorted(map(heads.moment, reversed(numbers))) == list(map(heads.moment, numbers))
