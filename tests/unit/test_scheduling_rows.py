"""The rows of schedules: stored first, revised, on and off, encoded; when they are looked at; what their jobs are."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from mainspring.jobs.query import parent_mark
from mainspring.jobs.records import FollowUp, NewJob
from mainspring.limits.records import Bucket, Limit
from mainspring.schedules.plan import (
    TEMPLATE,
    Definition,
    OpenRun,
    SchedulePlan,
    block_limit,
    decode,
    describe_full_bucket,
    disable,
    enable,
    encode,
    group_limit,
    mark_orphaned,
    new_plan,
    revise,
    step,
)
from mainspring.schedules.plan.run_job import MIN_KEEP, ONE_AT_A_TIME, RunBuilder
from mainspring.schedules.rules import Cron, Every, Once, jitter_delay, make_window
from mainspring.states import State
from tests.unit.schedule_samples import (
    FAILED,
    HOUR,
    JOB,
    MINUTE,
    NAME,
    RUNS,
    SECOND,
    T0,
    definition,
    ended,
    ids,
    look,
    opened,
    plan,
    run,
)

# ---- stored ---------------------------------------------------------------------------------------


def test_an_interval_is_anchored_once() -> None:
    assert plan().due == T0 + MINUTE
    assert plan(immediate=True).due == T0
    later = make_window(Every(MINUTE), start=T0 + HOUR)
    assert plan(rule=later).due == T0 + HOUR
    assert plan(rule=make_window(Once(delay=HOUR))).due == T0 + HOUR


def test_the_same_declaration_changes_nothing() -> None:
    """At any time and by any process: phase, watermark and failures are kept."""
    for options in ({}, {"immediate": True}, {"cron": "*/5 * * * *"}, {"rule": make_window(Once(delay=HOUR))}):
        there = ended(look(plan(**options), T0 + 2 * MINUTE).plan, FAILED)
        again = revise(there, definition(**options), T0 + 3 * MINUTE, owner="user")
        assert again == there


def test_a_change_keeps_the_phase_unless_the_rule_changes() -> None:
    there = replace(look(plan(), T0 + MINUTE).plan, failures=2, trips=1)
    changed = revise(there, definition(overlap="queue", max_failures=9), T0 + 90 * SECOND, owner="code", version="2")
    assert (changed.due, changed.rule, changed.watermark, changed.open) == (
        there.due, there.rule, there.watermark, there.open,
    )  # fmt: skip
    assert (changed.failures, changed.trips, changed.owner, changed.version) == (2, 1, "code", "2")
    other = revise(there, definition(every=HOUR), T0 + 90 * SECOND, owner="user")
    assert (other.due, other.watermark, other.open, other.failures) == (
        T0 + 90 * SECOND + HOUR, there.watermark, there.open, 2,
    )  # fmt: skip


def test_a_new_rule_does_not_fire_occurrences_before_the_watermark() -> None:
    there = look(plan(cron="* * * * *"), T0).plan
    other = revise(there, definition(cron="*/2 * * * *"), T0, owner="user")
    assert (there.watermark, other.due) == (T0, T0 + 2 * MINUTE)
    ahead = revise(there, definition(cron="*/2 * * * *"), T0 - HOUR, owner="user")
    assert ahead.due == T0 + 2 * MINUTE


def test_a_change_leaves_the_schedule_disabled() -> None:
    off = disable(plan(), T0, "no")
    for other in (definition(), definition(every=HOUR)):
        changed = revise(off, other, T0 + 1, owner="code")
        assert (changed.enabled, changed.off, changed.note) == (False, "operator", "no")
        assert look(changed, T0 + 24 * HOUR).jobs == ()


def test_disable_and_enable() -> None:
    off = disable(opened(plan(misfire="all"), run(1)), T0 + 1, "why not")
    assert (off.enabled, off.off, off.note, off.off_at, off.open) == (False, "operator", "why not", T0 + 1, (run(1),))
    assert (look(off, T0 + HOUR).jobs, look(replace(off, open=()), T0 + HOUR).look) == ((), None)
    on = enable(off, T0 + HOUR + 1)
    assert (on.enabled, on.off, on.note, on.off_at) == (True, "", "", 0)
    assert (on.due, on.watermark) == (T0 + HOUR + MINUTE, T0 + HOUR + 1)
    assert enable(plan(), T0) == plan()


def test_orphans_come_back_with_their_code() -> None:
    gone = mark_orphaned(plan(), T0, "2.0")
    assert (gone.enabled, gone.off, gone.note) == (False, "orphaned", "version 2.0 does not declare it")
    back = revise(gone, definition(), T0 + HOUR, owner="code", version="1.9")
    assert (back.enabled, back.off, back.note, back.due) == (True, "", "", T0 + HOUR + MINUTE)
    at_once = revise(gone, definition(every=HOUR, immediate=True), T0 + HOUR, owner="code")
    assert at_once.due == T0 + HOUR
    assert "started last" in mark_orphaned(plan(), T0, "").note


def test_a_schedule_that_a_user_disabled_is_not_enabled_by_code() -> None:
    gone = mark_orphaned(disable(plan(), T0, "no"), T0 + 1, "2.0")
    assert (gone.off, gone.note) == ("operator", "no")
    assert not revise(gone, definition(), T0 + 2, owner="code").enabled


def test_a_schedule_that_failures_disabled_does_not_come_back_without_its_code() -> None:
    gone = mark_orphaned(ended(plan(max_failures=1), FAILED), T0 + 1, "2.0")
    assert look(gone, T0 + 24 * HOUR).plan == gone


# ---- encoded --------------------------------------------------------------------------------------

FULL = SchedulePlan(
    definition=Definition(
        job=replace(
            JOB, record=b'{"args":{"x":1}}', marks=("red",), buckets=(Bucket("api", "k", 2),), keep=HOUR, delay=3,
            follows=(FollowUp(State.DEAD, NewJob(id=b"f" * 16, task="shop.tell", queue="q")),),
        ),
        limits=(Limit(name="api", kind="rate", size=3, per=SECOND),),
        rule=make_window(Cron.of("0 3 * * *", tz="Europe/Kyiv"), T0, T0 + 24 * HOUR * 365),
        immediate=True, jitter=5, overlap="queue", misfire="all", depends_on=("a",), blocks=("b",), group="g",
        max_failures=7, reenable_after=8, min_pause=9, history=10,
    ),
    rule=make_window(Cron.of("0 3 * * *", tz="Europe/Kyiv")), owner="code", version="1.2", enabled=False,
    off="failures",
    note="x", off_at=1, back_at=2, trial=True, trips=3, watermark=4, due=5, asked=6,
    open=(OpenRun(1, b"j" * 16, 2, "triggered"),), failures=6, succeeded=7, failed=8, error="e",
)  # fmt: skip


@pytest.mark.parametrize("there", [plan(), FULL, ended(plan(), FAILED), plan(mode="continuous")])
def test_a_row_is_decoded_as_it_was_encoded(there: SchedulePlan) -> None:
    assert decode(encode(there)) == there
    assert encode(decode(encode(there))) == encode(there)


def test_fields_of_newer_code_are_ignored() -> None:
    doc = json.loads(encode(FULL))
    for part in (doc, doc["definition"], doc["open"][0], doc["definition"]["job"], doc["rule"], doc["rule"]["rule"]):
        part["of_tomorrow"] = {"a": [1]}
    assert decode(json.dumps(doc).encode()) == FULL


@pytest.mark.parametrize("wrong", [b"{", b"{}", b"", b'{"definition": {"mode": "of tomorrow"}}'])
def test_an_unreadable_row_raises_value_error(wrong: bytes) -> None:
    """A scheduler treats this error as a fault of this row alone."""
    with pytest.raises(ValueError, match=r"JSON|missing|truncated|enum value"):
        decode(wrong)


def test_equal_definitions_compare_equal() -> None:
    """Made twice, and through the store. Otherwise each start would look like a change."""
    for options in ({}, {"cron": "@daily", "tz": "Europe/Kyiv"}, {"mode": "continuous"}, {"overlap": "queue"}):
        one, other = definition(**options), definition(**options)
        assert one == other
        assert decode(encode(new_plan(one, T0))).definition == other
    assert definition() != definition(jitter=1)


# ---- looked at ------------------------------------------------------------------------------------


def test_the_time_of_the_next_check() -> None:
    assert look(plan(), T0).look == T0 + MINUTE
    assert look(plan(mode="triggered"), T0).look is None
    ran = opened(plan(every=24 * HOUR), run(1, made=T0))
    assert look(ran, T0).look == T0 + SECOND
    assert look(ran, T0 + 100 * SECOND).look == T0 + 110 * SECOND
    assert look(ran, T0 + 20 * HOUR).look == T0 + 20 * HOUR + 10 * MINUTE
    assert look(ran, T0 - HOUR).look == T0 - HOUR + SECOND


def test_the_youngest_run_decides_how_soon_the_next_check_is() -> None:
    ran = opened(plan(every=24 * HOUR, overlap="allow"), run(1, made=T0), run(2, made=T0 + HOUR))
    assert look(ran, T0 + HOUR + 20 * SECOND).look == T0 + HOUR + 22 * SECOND


def test_a_long_run_is_not_checked_often() -> None:
    """Each check is a write: less than two hundred a day, and one a minute for a continuous schedule."""
    for mode, most in (("triggered", 220), ("continuous", 24 * 60 + 60)):
        there, now, looks = opened(plan(mode=mode), run(1, made=T0)), T0, 0
        while now < T0 + 24 * HOUR:
            made = look(there, now)
            assert made.look is not None
            there, now, looks = made.plan, made.look, looks + 1
        assert looks < most


def test_a_check_that_finds_nothing_changes_nothing() -> None:
    for there in (plan(), plan(mode="triggered"), opened(plan(), run(1)), disable(plan(), T0)):
        made = look(there, T0 + SECOND)
        assert (made.plan, made.runs, made.jobs, made.news, made.cancel) == (there, (), (), (), ())


# ---- jobs -----------------------------------------------------------------------------------------


def made_by(**options: Any) -> NewJob:
    return RunBuilder(NAME, definition(**options), ids()).occurrence_job(T0, T0)


def test_a_run_is_the_declared_job() -> None:
    declared = replace(JOB, priority=3, record=b'{"v":1}', marks=("red",), expires_in=5, delay=7, early=True)
    made = made_by(job=declared, overlap="allow")
    assert made == replace(declared, id=made.id, record=made.record)
    assert json.loads(made.record) == {"v": 1, "occurrence": T0}
    assert made.id != JOB.id


def test_runs_that_must_not_overlap_use_a_limit_of_one() -> None:
    for overlap in ("skip", "queue", "cancel_previous"):
        made = made_by(overlap=overlap, job=replace(JOB, buckets=(Bucket("z"),)))
        assert made.buckets == (Bucket("schedules/at-once", NAME), Bucket("z"))
        (limit,) = RunBuilder(NAME, definition(overlap=overlap), ids()).limits
        assert (limit.name, limit.kind, limit.size) == ("schedules/at-once", "concurrency", 1)
    assert made_by(overlap="allow").buckets == ()
    assert made_by(overlap="allow", mode="continuous").buckets != ()
    assert RunBuilder(NAME, definition(overlap="allow"), ids()).limits == ()


def test_jitter_of_a_run_is_the_same_in_every_process() -> None:
    delay = jitter_delay(NAME, T0, MINUTE)
    assert made_by(jitter=MINUTE).run_at == made_by(jitter=MINUTE).run_at == T0 + delay
    late = RunBuilder(NAME, definition(jitter=MINUTE), ids()).occurrence_job(T0, T0 + delay)
    assert late.run_at is None
    both = made_by(jitter=MINUTE, job=replace(JOB, delay=SECOND))
    assert (both.run_at, both.delay) == (T0 + delay + SECOND, 0)


def test_a_run_is_kept_until_the_scheduler_has_seen_its_end() -> None:
    assert made_by(job=replace(JOB, keep=0)).keep == MIN_KEEP
    assert made_by(job=replace(JOB, keep=24 * HOUR)).keep == 24 * HOUR
    assert made_by().keep is None


def test_follow_ups_of_a_schedule_follow_its_runs() -> None:
    """They have their own ids, and refer to the run where they referred to the declared job."""
    text = str(TEMPLATE)
    record = json.dumps({"args": {"job": text, "x": "y"}, "parent": text, "trace": TEMPLATE.hex}).encode()
    tell = NewJob(
        id=TEMPLATE.bytes, task="shop.tell", queue="q", record=record, marks=("t", parent_mark(TEMPLATE.bytes))
    )
    declared = replace(JOB, follows=(FollowUp(State.DEAD, tell), FollowUp(State.SUCCEEDED, tell)))
    new_id = ids()
    runs = [RunBuilder(NAME, definition(job=declared), new_id).occurrence_job(T0 + n, T0) for n in range(3)]
    follow_ups = [follow.job for made in runs for follow in made.follows]
    assert len({job.id for job in follow_ups}) == 6
    assert all(job.id.endswith(b"\0\0") for job in follow_ups)
    for made in runs:
        for follow in made.follows:
            said = msgspec.json.decode(follow.job.record)
            id = UUID(bytes=made.id)
            assert said == {"args": {"job": str(id), "x": "y"}, "parent": str(id), "trace": id.hex}
            assert follow.job.marks == ("t", parent_mark(made.id))
    assert [follow.on for follow in runs[0].follows] == [State.DEAD, State.SUCCEEDED]


def test_a_step_has_the_limits_of_its_jobs() -> None:
    own = Limit(name="api", size=3)
    made = step(NAME, plan(limits=(own,)), T0 + MINUTE, {}, ids())
    assert [limit.name for limit in made.limits] == ["api", "schedules/at-once"]
    assert look(opened(plan(limits=(own,)), run(1)), T0 + 1, RUNS).limits == ()


def test_full_buckets_of_schedules_are_described_in_words() -> None:
    own = Bucket(ONE_AT_A_TIME.name, "process").name
    assert describe_full_bucket(own) == "schedule 'process' runs one job at a time"
    assert (
        describe_full_bucket(block_limit("process", "cleanup").name) == "schedules cleanup and process block each other"
    )
    assert describe_full_bucket(group_limit("etl", 2).name) == "group 'etl' has reached max_concurrent"
    for other in ("shop.send:at-once", "queue/mail:at-once", "group/etl"):
        assert describe_full_bucket(other) == ""
