"""Errors say what happened, to what, and what to do; they carry their subject and can travel."""

from __future__ import annotations

import copy
import inspect
import pickle
import uuid
from datetime import timedelta

import pytest

from mainspring import errors
from mainspring.errors import (
    InvalidOption,
    JobDead,
    JobNotFound,
    MainspringError,
    MissingArgument,
    NotBuilt,
    Retry,
    Signal,
    Snooze,
    StoreUnavailable,
    UnknownArgument,
    UnknownOption,
    WouldBlockLoop,
    did_you_mean,
    mask_url,
)

JOB = uuid.UUID("01890a5d-ac96-774b-bcce-b302099a8057")

SAMPLES: list[BaseException] = [
    errors.LimitTimeout("api", 2.0),
    errors.LockBusy("lock 'nightly'", "report.py (pid 7 on a)", 2.0),
    errors.LockLost("lock 'nightly'", 7, "it could not be renewed in time"),
    errors.RateLimited("5s"),
    errors.UnknownOption("task 'send'", "retrys", ["retries", "queue"]),
    errors.InvalidOption("timeout", "5x", "unknown unit 'x'", hint="Write 5s."),
    errors.NotBuilt("task 'send'", "key"),
    errors.NotBuiltAttribute("Mainspring", "pipeline"),
    errors.NotBuiltImport("mainspring", "sweep"),
    errors.BadUrl("mysql://u:secret@h/db", "unknown scheme"),
    errors.MissingDriver("redis://:secret@h/0", "hiredis", "redis"),
    errors.BadSignature("send", "to", "cannot be resolved"),
    errors.BreakerOpen("payments", timedelta(seconds=30), "ConnectionError: away"),
    errors.MissingArgument("send", ["to", "subject"]),
    errors.UnknownArgument("send", "too", ["to"]),
    errors.WrongArgument("send", "to", "argument 'to' expected str, got int", path="to[0]"),
    errors.ArgumentNotSerializable("send", "to", "no"),
    errors.PayloadTooLarge("send", 2_000_000, 1_000_000),
    errors.PayloadTooDeep("send", "to", 64),
    errors.UnknownTask("shop.sent", ["shop.send"]),
    errors.TaskNotImportable("shop.<locals>.f", "is defined inside a function"),
    errors.WrongConnection("a redis client cannot carry a PostgreSQL enqueue"),
    errors.InCallerTransaction("the job is not committed yet"),
    errors.KeyTaken("send", JOB),
    errors.KeyConflict("send", JOB, uuid.UUID(int=7)),
    errors.QueueDraining("email"),
    errors.QueueDisabled("email", "ann@desk"),
    errors.QueueFull("email", 5, 2.0, waits=True, waited=10.0),
    errors.FlowClosed(uuid.UUID(int=9)),
    errors.JobDead(JOB, "boom", type_name="ValueError", reason="retries_exhausted"),
    errors.JobCancelled(JOB, "by_user"),
    errors.ResultTimeout(JOB, 5.0, "ready"),
    errors.ResultGone(JOB),
    errors.ResultTooLarge(2, 1, job=JOB),
    errors.JobNotFound(JOB),
    errors.StreamFull(JOB, "10,000 items"),
    errors.WrongState(JOB, "retry", "running", {"dead", "cancelled"}),
    errors.SoftTimeout(5),
    errors.HardTimeout(5),
    errors.WorkerCrashed("ab12", signal=9),
    errors.ChildDied("was killed by SIGKILL (killed)"),
    errors.WorkerLost("ab12"),
    errors.Undecodable("task 'send'", "missing field"),
    errors.ResultNotSerializable("a socket"),
    errors.WrongOutcomes("shop.send", "returned None"),
    errors.Fenced("lease ended"),
    errors.StoreUnavailable("no answer", url="redis://:secret@h/0"),
    errors.StoreMisconfigured("no such database", url="redis://:secret@h/0"),
    errors.InMemoryStore("mainspring worker needs a second process"),
    errors.StoreConflict("taken"),
    errors.StoreFull("disk full"),
    errors.SchemaOutdated("version 1 < 2"),
    errors.StoreCorrupt("malformed"),
    errors.UnsupportedFileSystem("nfs"),
    errors.StoreReadOnly("replica"),
    errors.StoreNotDurable("fsync = off"),
    errors.DrainTimeout("email", 5.0, 2),
    errors.WouldBlockLoop("job.result"),
    errors.WouldDeadlock(),
    errors.UnknownAttribute("Task", "delay", hint="Write enqueue."),
    errors.UnknownImport("mainspring", "shared_task", hint="Write Tasks."),
    errors.OptionsOnCall("shop.send", ["delay"], "enqueue"),
    errors.NoMainGuard(),
    errors.LoopEnded("loop.stop()"),
    errors.NotOpen("closed"),
    errors.NotTriggered("nightly", "it is disabled"),
    errors.NoApp("shop.send"),
    errors.ForkedWorker("forked"),
    errors.MiddlewareError("Stopwatch", "arun", ran=False),
    errors.InsideTest("not in a test"),
    errors.OutsideTest("a real store"),
    errors.Retry("5s"),
    errors.Snooze(for_="5m"),
    errors.Cancel("not needed"),
    errors.Discard("bad data"),
]


def concrete() -> list[type[BaseException]]:
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, (MainspringError, Signal))]
    return [c for c in classes if not set(classes) & set(c.__subclasses__())]


def test_every_class_is_in_the_drawn_tree_and_has_a_docstring() -> None:
    for cls in [*concrete(), MainspringError, Signal]:
        assert cls.__doc__
        assert f" {cls.__name__}" in (errors.__doc__ or "")


def test_every_leaf_class_has_a_sample_here() -> None:
    assert {type(sample) for sample in SAMPLES} == {*concrete(), errors.NotBuilt}  # it is raised itself as well


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
def test_an_error_survives_pickle_and_copy(error: BaseException) -> None:
    error.add_note("seen in a test")
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert twin.__dict__ == error.__dict__


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.ConfigError, ValueError),
        (errors.ArgumentError, TypeError),
        (errors.UnknownTask, LookupError),
        (errors.ResultTimeout, TimeoutError),
        (errors.JobNotFound, LookupError),
        (errors.SoftTimeout, TimeoutError),
        (errors.HardTimeout, TimeoutError),
        (errors.StoreUnavailable, ConnectionError),
        (errors.DrainTimeout, TimeoutError),
        (errors.WouldBlockLoop, RuntimeError),
    ],
)
def test_an_error_is_also_an_instance_of_the_matching_builtin(cls: type, builtin: type) -> None:
    assert issubclass(cls, MainspringError)
    assert issubclass(cls, builtin)


def test_the_hint_is_a_second_indented_line() -> None:
    assert str(MainspringError("it broke", hint="mend it")) == "it broke\n  mend it"
    assert str(MainspringError("it broke")) == "it broke"


def test_an_unknown_option_is_named_with_the_nearest_one() -> None:
    error = UnknownOption("task 'send'", "retrys", ["retries", "queue"])
    assert error.message == "task 'send': option 'retrys' does not exist; did you mean 'retries'?"
    assert "queue, retries" in error.hint


def test_an_invalid_option_can_name_its_owner() -> None:
    error = InvalidOption("timeout", "5x", "unknown unit 'x'", hint="h").about("task 'send'")
    assert str(error) == "task 'send': timeout='5x': unknown unit 'x'\n  h"
    assert (error.name, error.subject) == ("timeout", "task 'send'")


def test_errors_carry_their_subject_as_attributes() -> None:
    assert NotBuilt("task", "key").name == "key"
    assert MissingArgument("send", ["to", "cc"]).missing == ("to", "cc")
    assert UnknownArgument("send", "too", ["to"]).argument == "too"
    assert JobNotFound(JOB).job == JOB
    dead = JobDead(JOB, "boom", type_name="ValueError", reason="retries_exhausted")
    assert (dead.error, dead.type_name, dead.reason) == ("boom", "ValueError", "retries_exhausted")
    assert "ValueError: boom" in str(dead)


def test_a_store_error_never_shows_the_password() -> None:
    error = StoreUnavailable("no answer", url="postgresql://shop:s3cret@db/shop")
    assert error.url == "postgresql://shop:***@db/shop"
    assert "s3cret" not in str(error) + repr(error) + repr(error.__dict__)


def test_would_block_loop_names_the_async_method() -> None:
    assert "await job.aresult(...)" in str(WouldBlockLoop("job.result"))
    assert "await app.jobs.acount(...)" in str(WouldBlockLoop("app.jobs.count"))


def test_signals_are_not_errors() -> None:
    assert not issubclass(Signal, MainspringError)
    assert Retry().after is None


@pytest.mark.parametrize("kwargs", [{}, {"for_": "5m", "until": object()}])
def test_snooze_takes_exactly_one_of_for_and_until(kwargs: dict[str, object]) -> None:
    with pytest.raises(InvalidOption, match="exactly one"):
        Snooze(**kwargs)  # type: ignore[arg-type]  # the mistake under test


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://u:p@h:5432/db", "postgresql://u:***@h:5432/db"),
        ("postgresql://u:p@w@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:p/w@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u:p?w@h/db", "postgresql://u:***@h/db"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("postgresql://h:5432/db", "postgresql://h:5432/db"),
        ("redis://:pw@h:6379/0", "redis://:***@h:6379/0"),
        ("sqlite:////srv/a@b:c/x.db", "sqlite:////srv/a@b:c/x.db"),
        ("postgresql://h/db?user=u&password=p&x=1", "postgresql://h/db?user=u&password=***&x=1"),
        ("host=h password='a b' user=u", "host=h password=*** user=u"),
        ("", ""),
    ],
)
def test_mask_url_hides_passwords(url: str, masked: str) -> None:
    assert mask_url(url) == masked


def test_did_you_mean_is_empty_without_a_near_name() -> None:
    assert did_you_mean("xyz", ["retries"]) == ""
