"""``depends_on`` in the pure step: which successes start a run, and what happens to an occurrence that waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.schedules.plan import (
    LastSuccess,
    SchedulePlan,
    ScheduleStep,
    SeenRun,
    TriggerRefusal,
    backfill,
    disable,
    find_unmet,
    needs_successes,
    new_plan,
    reject_jobs,
    revise,
    step,
    take_in,
    trigger,
)
from mainspring.schedules.plan.run_job import MIN_KEEP
from mainspring.schedules.plan.settle import ENDED_RUNS
from mainspring.schedules.plan.state import EndedRun
from mainspring.schedules.records import ALWAYS_DUE
from mainspring.states import State
from tests.unit.schedule_samples import (
    DONE,
    FAILED,
    JOB,
    MINUTE,
    NAME,
    RUNS,
    T0,
    WAITS,
    definition,
    ids,
    plan,
    run,
    told,
    words,
)

pytestmark = pytest.mark.row("O2")

DUE = T0 + MINUTE
NONE: dict[str, LastSuccess | None] = {"a": None}


def success(number: int, ended: int = T0) -> dict[str, LastSuccess | None]:
    return {"a": LastSuccess(number, ended)}


def at(there: SchedulePlan, now: int, successes: Any, seen: SeenRun | None = RUNS) -> ScheduleStep:
    return step(NAME, there, now, dict.fromkeys((each.job for each in there.open), seen), ids(), successes)


def waiting(**options: Any) -> SchedulePlan:
    made = at(plan(depends_on=("a",), **options), DUE, NONE)
    assert made.plan.waiting is not None
    return made.plan


def started(**options: Any) -> SchedulePlan:
    """Its run was made with the first success of ``a``."""
    return at(plan(depends_on=("a",), **options), DUE, success(1)).plan


def test_an_occurrence_waits_for_a_success_and_starts_with_its_own_moment() -> None:
    made = at(plan(depends_on=("a",)), DUE, NONE)
    ((moment, record),) = told(made.runs)
    assert (moment, record.what, record.note, made.jobs) == (DUE, "waiting", "waits for 'a' to succeed", ())
    assert made.look == ALWAYS_DUE
    later = at(made.plan, DUE + 5, success(1))
    assert ([run.at for run in later.runs], words(later.runs), len(later.jobs)) == ([DUE], ["fired"], 1)
    assert (later.plan.waiting, later.plan.used) == (None, {"a": 1})
    assert later.look is not None
    assert later.look > DUE


def test_a_look_that_finds_nothing_changes_nothing() -> None:
    there = waiting()
    made = at(there, DUE + 5, NONE)
    assert (made.plan, made.look, made.runs) == (there, ALWAYS_DUE, ())


def test_later_occurrences_are_coalesced_also_into_the_one_that_starts_now() -> None:
    made = at(waiting(), DUE + MINUTE, success(1))
    assert words(made.runs) == ["fired", "coalesced"]
    assert len(made.jobs) == 1


@pytest.mark.parametrize("overlap", ["queue", "allow"])
def test_of_several_due_occurrences_one_starts_and_one_waits(overlap: str) -> None:
    made = at(plan(depends_on=("a",), misfire="all", overlap=overlap), DUE + 3 * MINUTE, success(1))
    assert words(made.runs) == ["fired", "waiting", "coalesced", "coalesced"]


def test_a_success_is_used_once() -> None:
    there = at(started(), DUE + 1, success(1), DONE).plan
    assert at(there, DUE + MINUTE, success(1)).plan.waiting is not None
    assert len(at(there, DUE + MINUTE, success(2, DUE)).jobs) == 1


RETRIED = SeenRun(state=State.RUNNING, started=DUE + 9, attempt=2)
ONCE_MORE = SeenRun(state=State.RUNNING, started=DUE + 9, first_started=DUE + 7)
SNOOZED = SeenRun(state=State.SCHEDULED, started=DUE + 7, attempt=0, first_started=DUE + 7)
SEEN = {
    "before the start": (DUE + 5, SeenRun(state=State.RUNNING, started=DUE + 9), True),
    "after the start": (DUE + 10, SeenRun(state=State.RUNNING, started=DUE + 9), False),
    "of a run that has ended": (DUE + 5, SeenRun(state=State.SUCCEEDED, started=DUE + 9, ended=DUE + 11), True),
    "before a retry": (DUE + 5, replace(RETRIED, first_started=DUE + 7), True),
    "between attempts": (DUE + 8, replace(RETRIED, first_started=DUE + 7), False),
    "between attempts of an unknown start": (DUE + 5, RETRIED, False),
    "before its worker was lost": (DUE + 5, ONCE_MORE, True),
    "after its worker was lost": (DUE + 8, ONCE_MORE, False),
    "before a snooze": (DUE + 5, SNOOZED, True),
    "during a snooze": (DUE + 8, SNOOZED, False),
    "of a run that was cancelled in a snooze": (DUE + 5, replace(SNOOZED, state=State.CANCELLED, ended=DUE + 9), True),
}


@pytest.mark.parametrize("case", SEEN)
def test_a_start_uses_the_successes_before_it(case: str) -> None:
    ended, seen, is_used = SEEN[case]
    there = at(started(overlap="allow"), DUE + 20, success(2, ended), seen).plan
    assert (there.starts, find_unmet(there, success(2, ended))) == ((), ("a",) if is_used else ())


def test_while_a_run_has_not_started_nothing_is_met() -> None:
    there = started(overlap="allow")
    made = at(there, DUE + MINUTE, success(9), SeenRun(state=State.READY, attempt=0))
    assert (words(made.runs), made.plan.starts) == (["waiting"], there.starts)


@pytest.mark.parametrize("start", [None, DUE + 1])
def test_a_run_that_never_started_gives_its_success_back(start: int | None) -> None:
    """A job that was claimed and handed back before its body began did not start either."""
    cancelled = SeenRun(state=State.CANCELLED, started=start, ended=DUE + 2, attempt=0)
    there = at(started(), DUE + 3, success(1), cancelled).plan
    assert (there.used, find_unmet(there, success(1))) == ({"a": 0}, ())


@pytest.mark.parametrize(("later", "may_have_run"), [(MIN_KEEP - 1, False), (MIN_KEEP, True)])
def test_a_job_that_is_gone_has_run_if_it_was_made_long_ago(later: int, may_have_run: bool) -> None:
    """The job of a run is kept for a while after its end. Before, it is gone because it was not made."""
    made = started()
    there = take_in(made, DUE + later, {made.open[0].job: None}, success(1)).plan
    assert (there.starts, find_unmet(there, success(1))) == ((), ("a",) if may_have_run else ())


def test_a_run_that_its_queue_refuses_gives_its_success_back() -> None:
    made = at(plan(depends_on=("a",)), DUE, success(1))
    refused = reject_jobs(made, DUE, "the queue drains")
    assert (words(refused.runs), refused.plan.used, refused.plan.starts) == (["rejected"], {"a": 0}, ())


def test_a_waiting_occurrence_expires() -> None:
    job = replace(JOB, expires_in=10)
    there = waiting(job=job)
    assert at(there, DUE + 9, NONE).runs == ()
    made = at(there, DUE + 10, success(1))
    assert (words(made.runs), made.plan.waiting, made.jobs) == (["skipped"], None, ())
    (late,) = at(there, DUE + 9, success(1)).jobs
    assert late.expires_in == 1, "what is left of it"


def test_a_disabled_schedule_drops_its_waiting_occurrence() -> None:
    there = disable(waiting(), DUE + 1)
    made = at(there, DUE + 2, success(1))
    assert (words(made.runs), made.plan.waiting, made.jobs, made.look) == (["skipped"], None, (), None)


def test_a_waiting_occurrence_is_due_after_the_clock_was_set_back() -> None:
    made = at(waiting(), T0 - MINUTE, NONE)
    assert made.look == ALWAYS_DUE


def test_a_continuous_schedule_waits_before_each_run() -> None:
    there = at(plan(mode="continuous", depends_on=("a",)), T0, NONE)
    assert (words(there.runs), there.plan.due) == (["waiting"], None)
    made = at(there.plan, T0 + 5, success(1))
    assert len(made.jobs) == 1
    after = at(made.plan, T0 + 9, success(1), DONE)
    assert (words(after.runs), after.jobs) == (["fired", "waiting"], ())


def test_a_new_dependency_begins_with_its_present_number() -> None:
    made = new_plan(definition(depends_on=("a",)), T0, success(7))
    assert (made.used, find_unmet(made, success(7)), find_unmet(made, success(8))) == ({"a": 7}, ("a",), ())
    both = {**success(9), "b": LastSuccess(3, T0)}
    again = revise(made, definition(depends_on=("a", "b")), T0, both, owner="user")
    assert (again.used, find_unmet(again, both)) == ({"a": 7, "b": 3}, ("b",))
    without = revise(again, definition(), T0, owner="user")
    assert (without.used, find_unmet(without, both)) == ({}, ())


def test_a_schedule_without_its_dependencies_starts_what_waits() -> None:
    there = revise(waiting(), definition(), DUE + 1, owner="user")
    assert words(at(there, DUE + 1, {}).runs) == ["fired"]


def test_a_trigger_is_refused_and_force_is_a_start() -> None:
    there = plan(mode="triggered", depends_on=("a",))
    refused = trigger(NAME, there, T0, {}, ids(), NONE)
    assert refused == TriggerRefusal("it waits for 'a' to succeed")
    made = trigger(NAME, there, T0, {}, ids(), success(1))
    forced = trigger(NAME, there, T0, {}, ids(), success(1), force=True)
    for each in (made, forced):
        assert isinstance(each, ScheduleStep)
        assert (len(each.jobs), each.plan.used) == (1, {"a": 1})
    assert trigger(NAME, waiting(), DUE + 1, {}, ids(), success(1)) == TriggerRefusal(
        "its waiting occurrence is about to start"
    )


def test_a_backfill_is_one_start() -> None:
    there = plan(depends_on=("a",))
    assert backfill(NAME, there, T0, [1, 2], ids(), {}, NONE) == TriggerRefusal("it waits for 'a' to succeed")
    made = backfill(NAME, there, T0, [1, 2], ids(), {}, success(1))
    assert isinstance(made, ScheduleStep)
    assert (len(made.jobs), made.plan.used) == (2, {"a": 1})
    rest = backfill(NAME, made.plan, T0, [3], lambda: b"the third run...", {}, success(1), more=True)
    assert isinstance(rest, ScheduleStep)
    (start,) = rest.plan.starts
    jobs = [job.id for job in (*made.jobs, *rest.jobs)]
    assert list(start.jobs) == jobs
    never = SeenRun(state=State.CANCELLED, attempt=0, ended=T0)
    assert backfilled(rest.plan, [never, never, RUNS]) == ({"a": 1}, 0)
    assert backfilled(rest.plan, [never, never, WAITS]) == ({"a": 1}, 1)
    assert backfilled(rest.plan, [never, never, never]) == ({"a": 0}, 0)


def backfilled(plan: SchedulePlan, ends: Sequence[SeenRun]) -> tuple[dict[str, int], int]:
    """The used successes and the number of starts that were not seen, after a look at the runs of a backfill."""
    after = take_in(plan, T0 + 1, dict(zip((run.job for run in plan.open), ends, strict=True)), success(1)).plan
    return after.used, len(after.starts)


NEVER = SeenRun(state=State.CANCELLED, attempt=0, ended=DUE + 3)
STACKS: dict[str, tuple[tuple[SeenRun, SeenRun], int]] = {
    "both never start": ((NEVER, NEVER), 0),
    "the first one starts": ((RUNS, NEVER), 1),
    "the forced one starts": ((NEVER, RUNS), 2),
    "both start": ((RUNS, RUNS), 2),
}


@pytest.mark.parametrize("order", ["at once", "the first one first", "the forced one first"])
@pytest.mark.parametrize("case", STACKS)
def test_a_forced_run_behind_a_run_that_has_not_started(case: str, order: str) -> None:
    """Each gives back what it used if it never starts, whichever a scheduler sees first."""
    (first, second), used = STACKS[case]
    made = trigger(NAME, started(), DUE + 1, {}, lambda: b"the forced run..", success(2), force=True)
    assert isinstance(made, ScheduleStep)
    a, b = (run.job for run in made.plan.open)
    looks: list[dict[bytes, SeenRun | None]] = [{a: first, b: second}]
    if order != "at once":
        looks = [{a: first}, {b: second}] if order == "the first one first" else [{b: second}, {a: first}]
    there = made.plan
    for seen in looks:
        there = take_in(there, DUE + 4, seen, success(2, DUE + 9)).plan
    assert (there.starts, there.used) == ((), {"a": used})


def test_a_dependency_that_was_added_meanwhile_is_not_given_back() -> None:
    both = {**success(1), "b": LastSuccess(7, T0)}
    there = revise(started(), definition(depends_on=("a", "b")), DUE + 1, both, owner="user")
    after = at(there, DUE + 3, both, NEVER).plan
    assert (after.used, find_unmet(after, both)) == ({"a": 0, "b": 7}, ("b",))


class TestNumbers:
    """The number that dependent schedules compare: in the row of the schedule that succeeds."""

    @pytest.mark.parametrize(("seen", "number"), [(DONE, T0 + 5), (FAILED, None), (None, None), (RUNS, None)])
    def test_a_success_raises_the_number(self, seen: SeenRun | None, number: int | None) -> None:
        there = replace(plan(), open=(run(1),))
        made = take_in(there, T0 + 5, {run(1).job: seen})
        assert made.plan.success == (None if number is None else LastSuccess(number, T0))
        assert take_in(made.plan, T0 + 6, {run(1).job: seen}).plan.success == made.plan.success, "once"

    def test_the_number_grows_also_when_the_clock_was_set_back(self) -> None:
        there = replace(plan(), open=(run(1),), success=LastSuccess(T0 + 50, T0 + 40))
        assert take_in(there, T0 + 5, {run(1).job: DONE}).plan.success == LastSuccess(T0 + 51, T0 + 40)

    def test_a_backfilled_run_counts(self) -> None:
        there = replace(plan(), open=(run(1, what="backfilled"),))
        assert take_in(there, T0 + 5, {run(1).job: DONE}).plan.success is not None

    @pytest.mark.parametrize("before", [FAILED, DONE])
    def test_a_run_that_was_retried_by_hand_counts_when_it_succeeds_again(self, before: SeenRun) -> None:
        there = take_in(replace(plan(), open=(run(1),), needed=True), T0, {run(1).job: before}).plan
        assert there.ended == (EndedRun(run(1), 1),)
        running = SeenRun(state=State.RUNNING, epoch=2)
        assert take_in(there, T0 + 5, {run(1).job: running}).plan == there
        again = SeenRun(state=State.SUCCEEDED, ended=T0 + 8, epoch=2)
        made = take_in(there, T0 + 9, {run(1).job: again})
        assert (words(made.runs), made.plan.success) == (["fired"], LastSuccess(T0 + 9, T0 + 8))
        assert made.plan.failures == there.failures
        assert take_in(made.plan, T0 + 10, {run(1).job: again}).plan == made.plan

    def test_a_row_remembers_a_few_ended_runs_if_it_is_needed(self) -> None:
        there = replace(plan(), open=tuple(run(n) for n in range(20)), needed=True)
        seen: dict[bytes, SeenRun | None] = {run(n).job: DONE for n in range(20)}
        assert len(take_in(there, T0 + 5, seen).plan.ended) == ENDED_RUNS
        assert take_in(replace(there, needed=False), T0 + 5, seen).plan.ended == ()
        full = take_in(there, T0 + 5, seen).plan
        assert take_in(full, T0 + 6, dict.fromkeys(seen)).plan.ended == ()


def test_only_a_schedule_that_decides_needs_the_successes() -> None:
    there = plan(depends_on=("a",))
    assert [needs_successes(each, now) for each, now in (
        (there, T0), (there, DUE), (waiting(), T0), (started(), DUE + 1), (plan(), DUE), (disable(there, T0), DUE),
    )] == [False, True, True, True, False, False]  # fmt: skip
