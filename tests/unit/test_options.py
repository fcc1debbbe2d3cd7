"""Each option is declared once, checked where it is given, and never ignored."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, ForwardRef

import pytest

from mainspring.common.backoff import DEFAULT, Backoff
from mainspring.common.foreign_names import LATER
from mainspring.errors import ConfigError, InvalidOption, NotBuilt, UnknownOption
from mainspring.jobs.keys import Key
from mainspring.options.table import OPTIONS, Scope, beat_us, options_for, overlay_options, resolve_options
from mainspring.options.typed import (
    BreakerOptions,
    JobOptions,
    QueueOptions,
    ScheduleOptions,
    TaskOptions,
    WorkerOptions,
)
from mainspring.queues.queue import Queue

TYPED: dict[Scope, Any] = {
    "job": JobOptions, "task": TaskOptions, "worker": WorkerOptions, "queue": QueueOptions, "breaker": BreakerOptions,
    "schedule": ScheduleOptions,
}  # fmt: skip


def annotation_text(annotation: Any) -> str:
    text = annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else str(annotation)
    return text.replace('"', "'")


@pytest.mark.parametrize("scope", TYPED)
def test_the_typed_dictionaries_equal_the_table(scope: Scope) -> None:
    written = {name: annotation_text(a) for name, a in TYPED[scope].__annotations__.items()}
    assert written == {option.name: option.type for option in options_for(scope)}
    assert not TYPED[scope].__total__


def test_every_option_is_declared_once_with_a_meaning() -> None:
    names = [option.name for option in OPTIONS]
    assert len(names) == len(set(names))
    assert all(option.doc.endswith(".") for option in OPTIONS)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda o: o.name)
def test_a_default_is_already_in_normal_form(option: Any) -> None:
    """The shown default is equal to the stored default."""
    if option.default is None or isinstance(option.default, (str, bool, tuple, dict, Backoff)):
        assert option.convert(option.default, option.name) == option.default
    if option.shown_default[:1].isdigit() and option.name != "backoff":
        assert option.convert(option.shown_default, option.name) == option.default


def test_the_defaults_are_those_of_the_design() -> None:
    task = resolve_options("task", {}, subject="task 'send'")
    assert (task["queue"], task["priority"], task["retries"], task["crashes"]) == ("default", 0, 5, 3)
    assert (task["timeout"], task["backoff"], task["ack"], task["result"]) == (3_600_000_000, DEFAULT, "late", "store")
    worker = resolve_options("worker", {}, subject="worker")
    times = [worker[name] for name in ("lease", "sweep", "poll", "drain", "grace")]
    assert times == [15_000_000, 3_000_000, 2_000_000, 25_000_000, 5_000_000]
    assert (worker["processes"], worker["async_slots"], worker["queues"]) == (1, 64, None)
    assert 1 <= worker["thread_slots"] <= 32
    assert beat_us(worker["lease"]) == 5_000_000


@pytest.mark.parametrize(
    ("scope", "name", "value", "normal"),
    [
        ("job", "queue", "email:eu.1-a_b", "email:eu.1-a_b"),
        ("job", "priority", "high", 50),
        ("job", "priority", "critical", 100),
        ("job", "priority", -100, -100),
        ("job", "expires", "1h", 3_600_000_000),
        ("job", "expires", None, None),
        ("job", "retries", 0, 0),
        ("job", "timeout", "90s", 90_000_000),
        ("job", "timeout", timedelta(seconds=1), 1_000_000),
        ("job", "timeout", None, None),
        ("job", "delay", 0, 0),
        ("job", "delay", "5m", 300_000_000),
        ("job", "run_at", datetime(1970, 1, 2, tzinfo=UTC), 86_400_000_000),
        ("job", "key", "report-7", Key("report-7")),
        ("job", "key", None, None),
        ("job", "key", Key.arguments("a"), Key.arguments("a")),
        ("job", "tags", ["b", "a", "b"], ("b", "a")),
        ("job", "meta", {"customer": 7, "way": (1, 2)}, {"customer": 7, "way": [1, 2]}),
        ("task", "retention", "2h", 7_200_000_000),
        ("bulk", "size", 1, 1),
        ("bulk", "wait", 0, 0),
        ("bulk", "wait", "1s", 1_000_000),
        ("bulk", "by", "customer.region", "customer.region"),
        ("bulk", "by", len, len),
        ("task", "on_dead", "shop.alert", "shop.alert"),
        ("task", "on_success", None, None),
        ("task", "sensitive", ["password"], ("password",)),
        ("task", "name", "shop.send", "shop.send"),
        ("task", "aliases", ["a.b", "c"], ("a.b", "c")),
        ("task", "executor", "thread", "thread"),
        ("task", "executor", "process", "process"),
        ("task", "pool", "gpu", "gpu"),
        ("pool", "max_memory_per_child", "1GB", 1_000_000_000),
        ("pool", "max_age", "1h", 3_600_000_000),
        ("task", "soft_timeout", "5s", 5_000_000),
        ("task", "backoff", "30s", Backoff.fixed("30s")),
        ("task", "retry_on", OSError, (OSError,)),
        ("task", "retry_on", [OSError, KeyError], (OSError, KeyError)),
        ("task", "never_retry_on", (KeyError,), (KeyError,)),
        ("task", "retry_if", callable, callable),
        ("task", "crashes", 1, 1),
        ("task", "ack", "early", "early"),
        ("task", "fence", "strict", "strict"),
        ("task", "result", "ignore", "ignore"),
        ("job", "queue", Queue("email", {}), "email"),
        ("queue", "weight", 2.5, 2.5),
        ("task", "needs", {"gpu", "big", "9-x_"}, ("9-x_", "big", "gpu")),
        ("task", "needs", (), ()),
        ("task", "pin_version", True, True),
        ("worker", "labels", "gpu, big", ("big", "gpu")),
        ("worker", "labels", ["gpu", "gpu"], ("gpu",)),
        ("worker", "queues", "email, default", ("email", "default")),
        ("worker", "queues", ["a", "b", "a"], ("a", "b")),
        ("worker", "processes", "4", 4),
        ("worker", "async_slots", 0, 0),
        ("worker", "thread_slots", 7, 7),
        ("worker", "concurrency", {"email": 5}, {"email": 5}),
        ("worker", "concurrency", 5, 5),
        ("worker", "lease", "30s", 30_000_000),
        ("worker", "drain", 0, 0),
        ("worker", "until_empty", True, True),
        ("worker", "poll", 0.2, 200_000),
        ("worker", "sweep", "1s", 1_000_000),
        ("worker", "grace", "2s", 2_000_000),
    ],
)
def test_values_come_out_in_normal_form(scope: Scope, name: str, value: Any, normal: Any) -> None:
    assert resolve_options(scope, {name: value}, subject="x")[name] == normal


@pytest.mark.parametrize(
    ("scope", "name", "value"),
    [
        ("job", "queue", ""),
        ("job", "queue", "-a"),
        ("job", "queue", "a b"),
        ("job", "queue", "é"),
        ("job", "queue", "a" * 65),
        ("job", "queue", "a\n"),
        ("job", "queue", 5),
        ("job", "priority", 101),
        ("job", "priority", "urgent"),
        ("job", "priority", True),
        ("job", "priority", 1.0),
        ("job", "expires", 0),
        ("job", "retries", -1),
        ("job", "retries", None),
        ("job", "retries", True),
        ("job", "timeout", 0),
        ("job", "timeout", "soon"),
        ("job", "delay", -1),
        ("job", "run_at", datetime(2030, 1, 1)),  # noqa: DTZ001 - the mistake under test
        ("job", "run_at", "2030-01-01"),
        ("job", "key", ""),
        ("job", "key", "k" * 501),
        ("job", "key", "a\0b"),
        ("job", "key", 7),
        ("job", "tags", "one"),
        ("job", "tags", [""]),
        ("job", "tags", ["t" * 65]),
        ("job", "tags", ["a\nb"]),
        ("job", "tags", ["^mine"]),
        ("job", "tags", [" padded"]),
        ("job", "tags", [7]),
        ("job", "tags", [str(n) for n in range(21)]),
        ("job", "meta", ["a"]),
        ("job", "meta", {1: "a"}),
        ("job", "meta", {"a": object()}),
        ("job", "meta", {"a": {1, 2}}),
        ("job", "meta", {"a": float("nan")}),
        ("job", "meta", {"a": "\0"}),
        ("job", "meta", {"a": datetime(2030, 1, 1, tzinfo=UTC)}),
        ("job", "meta", {"a": "x" * 16_000}),
        ("task", "retention", 0),
        ("bulk", "size", 0),
        ("bulk", "size", 10_001),
        ("bulk", "size", True),
        ("bulk", "wait", None),
        ("bulk", "by", ""),
        ("bulk", "by", "a..b"),
        ("bulk", "by", ["a"]),
        ("task", "on_dead", "two words"),
        ("task", "on_dead", lambda: None),
        ("task", "on_cancel", 7),
        ("task", "sensitive", "password"),
        ("task", "sensitive", ["a b"]),
        ("task", "name", ""),
        ("task", "name", "two words"),
        ("task", "aliases", "shop.old"),
        ("task", "aliases", [None]),
        ("task", "executor", "fibre"),
        ("task", "backoff", None),
        ("task", "retry_on", "OSError"),
        ("task", "retry_on", [OSError()]),
        ("task", "retry_on", KeyboardInterrupt),
        ("task", "retry_if", True),
        ("task", "crashes", 0),
        ("task", "ack", None),
        ("task", "fence", []),
        ("task", "result", "keep"),
        ("queue", "weight", 0),
        ("task", "needs", "gpu"),
        ("task", "needs", None),
        ("task", "pin_version", "1.4"),
        ("worker", "labels", "GPU"),
        ("worker", "labels", None),
        ("worker", "queues", []),
        ("worker", "queues", ""),
        ("worker", "queues", ["a b"]),
        ("worker", "processes", 0),
        ("worker", "processes", "many"),
        ("worker", "async_slots", -1),
        ("worker", "concurrency", 0),
        ("worker", "concurrency", True),
        ("worker", "concurrency", "5"),
        ("worker", "concurrency", {"email": 0}),
        ("worker", "lease", 0),
        ("worker", "lease", None),
        ("worker", "until_empty", 1),
        ("worker", "drain", None),
    ],
)
def test_a_wrong_value_is_refused_naming_subject_and_option(scope: Scope, name: str, value: Any) -> None:
    with pytest.raises(InvalidOption) as caught:
        resolve_options(scope, {name: value}, subject="task 'shop.send'")
    assert str(caught.value).startswith(f"task 'shop.send': {name}")


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownOption, match="task 'send': option 'retrys' does not exist; did you mean 'retries'"):
        resolve_options("task", {"retrys": 5}, subject="task 'send'")


def test_an_option_of_another_scope_names_its_place() -> None:
    with pytest.raises(UnknownOption, match=r"'backoff' is an option of @app.task") as caught:
        resolve_options("job", {"backoff": "5s"}, subject="send.options")
    assert caught.value.name == "backoff"
    with pytest.raises(UnknownOption, match=r"task\.options"):
        resolve_options("task", {"delay": "5s"}, subject="task 'send'")


@pytest.mark.parametrize("name", LATER["option"])
def test_an_option_of_a_later_release_is_refused_not_ignored(name: str) -> None:
    with pytest.raises(NotBuilt, match=f"'{name}' is not built yet\n  Until then: "):
        resolve_options("task", {name: None}, subject="task")


@pytest.mark.parametrize(("scope", "name", "value"), [("worker", "processes", "2..8")])
def test_a_value_of_a_later_release_is_refused_not_ignored(scope: Scope, name: str, value: str) -> None:
    with pytest.raises(NotBuilt, match=name):
        resolve_options(scope, {name: value}, subject=scope)


@pytest.mark.parametrize(
    ("scope", "given", "match"),
    [
        ("job", {"delay": "5s", "run_at": datetime(2030, 1, 1, tzinfo=UTC)}, "run_at"),
        ("task", {"timeout": "5s", "soft_timeout": "5s"}, "shorter than timeout"),
        ("task", {"soft_timeout": "2h"}, "shorter than timeout"),
        ("task", {"retry_on": (OSError, KeyError), "never_retry_on": KeyError}, "KeyError"),
        ("task", {"retry_on": ConnectionError, "never_retry_on": OSError}, "ConnectionError"),
    ],
)
def test_options_that_contradict_each_other_are_refused(scope: Scope, given: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidOption, match=match):
        resolve_options(scope, given, subject="x")


def test_a_never_retry_on_narrower_than_retry_on_is_accepted() -> None:
    made = resolve_options("task", {"retry_on": OSError, "never_retry_on": ConnectionError}, subject="x")
    assert (made["retry_on"], made["never_retry_on"]) == ((OSError,), (ConnectionError,))
    made = resolve_options("task", {"timeout": None, "soft_timeout": "2h"}, subject="x")
    assert made["timeout"] is None


def test_a_job_starts_from_its_task_and_changes_only_what_is_given() -> None:
    task = resolve_options("task", {"queue": "email", "retries": 2, "soft_timeout": "10s"}, subject="task")
    job = resolve_options("job", {"retries": 9}, base=task, subject="send.options")
    assert (job["queue"], job["retries"], job["delay"]) == ("email", 9, None)
    assert task["retries"] == 2
    with pytest.raises(InvalidOption, match="soft_timeout must be shorter"):
        resolve_options("job", {"timeout": "5s"}, base=task, subject="send.options")


def test_every_refused_option_raises_a_config_error() -> None:
    for given in ({"nope": 1}, {"limit": 5}, {"queue": ""}):
        with pytest.raises(ConfigError):
            resolve_options("task", given, subject="x")


def test_tags_and_meta_of_a_job_add_to_those_of_the_task() -> None:
    task = resolve_options("task", {"tags": ["shop"], "meta": {"a": 1}}, subject="task")
    first = overlay_options({"tags": ["x"], "meta": {"a": 2, "b": {"c": 1}}}, task=task, before={}, subject="task")
    second = overlay_options({"tags": ["y", "x"], "meta": {"b": 3}}, task=task, before=first, subject="task")
    assert (second["tags"], second["meta"]) == (("x", "y"), {"a": 2, "b": 3})
    assert (first["tags"], first["meta"]) == (("x",), {"a": 2, "b": {"c": 1}}), "what was there is not changed"


def test_the_limits_of_tags_and_meta_apply_to_task_and_job_together() -> None:
    task = resolve_options("task", {"tags": [f"t{n}" for n in range(15)], "meta": {"a": "x" * 9_000}}, subject="task")
    with pytest.raises(InvalidOption, match=r"task 'send': tags.*at most 20"):
        overlay_options({"tags": [f"j{n}" for n in range(6)]}, task=task, before={}, subject="task 'send'")
    with pytest.raises(InvalidOption, match=r"task 'send': meta.*the limit is 16,000"):
        overlay_options({"meta": {"b": "x" * 9_000}}, task=task, before={}, subject="task 'send'")
    overlay_options({"meta": {"a": "short"}}, task=task, before={}, subject="task 'send'")
