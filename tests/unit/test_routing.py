"""Which queue a task's jobs go to."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.errors import InvalidOption
from mainspring.tasks.routing import Routes


def test_a_name_beats_a_pattern_and_both_beat_the_queue_of_the_task() -> None:
    routes = Routes({"shop.*": "shop", "shop.send": "mail", "*.send": "sending"})
    assert routes.queue_for("shop.send", "own") == "mail"
    assert routes.queue_for("shop.pay", "own") == "shop"
    assert routes.queue_for("blog.write", "own") == "own"


def test_the_longer_of_two_patterns_wins_and_of_equal_ones_the_first() -> None:
    routes = Routes(
        {"shop.*": "shop", "shop.mail.*": "mail", "*.mail.??": "never", "shop.???": "three", "*.mail.*": "also"}
    )
    assert routes.queue_for("shop.mail.send", "own") == "mail"
    equal = Routes({"a.*": "first", "*.b": "second"})
    assert equal.queue_for("a.b", "own") == "first"
    assert Routes({"*.b": "second", "a.*": "first"}).queue_for("a.b", "own") == "second"


def test_patterns_match_case_and_whole_names() -> None:
    routes = Routes({"shop.[ps]*": "q"})
    assert {name for name in ("shop.pay", "shop.send") if routes.queue_for(name, "own") == "q"} == {
        "shop.pay",
        "shop.send",
    }
    assert {routes.queue_for(name, "own") for name in ("Shop.pay", "my.shop.pay", "shop.x")} == {"own"}


def test_queues_lists_every_queue_of_the_table() -> None:
    assert Routes({"a": "z", "b.*": "y", "c": "z"}).queues == ("y", "z")
    assert not Routes()
    assert Routes({"a": "b"}) == Routes({"a": "b"}) != Routes()


@pytest.mark.parametrize("table", [["a"], "a=b", {"": "q"}, {7: "q"}, {"a": "not a queue"}, {"a": None}, {"a": ""}])
def test_a_bad_route_is_refused(table: Any) -> None:
    with pytest.raises(InvalidOption, match="routes"):
        Routes(table)
