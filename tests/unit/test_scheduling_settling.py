"""What the ends of runs come to: records, failures in a row, auto-disable and the way back, continuous runs."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mainspring.schedules.plan import ScheduleNews, SchedulePlan, SeenRun, disable, enable, new_plan, revise, step
from mainspring.schedules.plan.settle import settle
from mainspring.states import Reason, State
from tests.unit.schedule_samples import (
    CANCELLED,
    DONE,
    FAILED,
    HOUR,
    MINUTE,
    NAME,
    RUNS,
    SECOND,
    T0,
    WAITS,
    definition,
    ended,
    ids,
    look,
    opened,
    plan,
    run,
    told,
    words,
)

TIMED_OUT = SeenRun(state=State.DEAD, reason=Reason.TIMED_OUT, ended=T0, error="TimedOut: 3s")
CRASHED = SeenRun(state=State.DEAD, reason=Reason.CRASHED, ended=T0, error="Crashed")


def test_the_record_of_a_run_has_its_end() -> None:
    seen = SeenRun(state=State.DEAD, reason=Reason.CRASHED, started=T0 + 1, ended=T0 + 2, error="Boom: x")
    there = opened(plan(mode="triggered"), run(1, what="triggered"))
    settled, runs = settle(there, T0 + 5, {run(1).job: seen})
    ((at, record),) = told(runs)
    assert (at, runs[0].job) == (T0, run(1).job)
    assert (record.what, record.state, record.reason) == ("triggered", State.DEAD, Reason.CRASHED)
    assert (record.made, record.started, record.ended, record.error) == (T0, T0 + 1, T0 + 2, "Boom: x")
    assert settled.open == ()
    assert settled.last is not None
    assert (settled.last.job, settled.last.state, settled.last.ended) == (run(1).job, State.DEAD, T0 + 2)
    assert (settled.failed, settled.error, settled.succeeded) == (T0 + 2, "Boom: x", None)


def test_a_deleted_job_ends_its_run() -> None:
    settled, runs = settle(opened(plan(), run(1)), T0 + 5, {run(1).job: None})
    ((_, record),) = told(runs)
    assert (record.state, record.ended) == (None, T0 + 5)
    assert "deleted before a scheduler saw its end" in record.note
    assert (settled.open, settled.failures) == ((), 0)


@pytest.mark.parametrize("seen", [RUNS, WAITS, SeenRun(state=State.RETRYING)])
def test_a_run_without_an_end_stays_open(seen: SeenRun) -> None:
    there = opened(plan(), run(1), run(2))
    assert settle(there, T0, {run(1).job: seen}) == (there, [])
    assert settle(there, T0, {}) == (there, [])


def test_ends_of_runs_are_applied_in_the_order_of_their_times() -> None:
    """The run that ended last decides the number of failures in a row, whenever it was made."""
    there = opened(plan(overlap="allow"), run(1), run(2, T0 + 1), run(3, T0 + 2))
    ends = {
        run(1).job: SeenRun(state=State.DEAD, ended=T0 + 30, error="late"),
        run(2).job: SeenRun(state=State.SUCCEEDED, ended=T0 + 20),
        run(3).job: SeenRun(state=State.DEAD, ended=T0 + 10, error="soon"),
    }
    settled, runs = settle(there, T0 + 40, ends)
    assert [each.job for each in runs] == [run(3).job, run(2).job, run(1).job]
    assert (settled.failures, settled.error, settled.succeeded) == (1, "late", T0 + 20)
    assert settled.last is not None
    assert settled.last.job == run(1).job


# ---- failures in a row ----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [FAILED, TIMED_OUT, CRASHED])
def test_max_failures_in_a_row_disable_the_schedule(bad: SeenRun) -> None:
    there = ended(plan(max_failures=3), bad, bad)
    assert (there.enabled, there.failures) == (True, 2)
    made = look(opened(there, run(9)), T0 + 5, bad)
    off = made.plan
    assert (off.enabled, off.off, off.failures, off.note, off.off_at) == (False, "failures", 3, bad.error, T0 + 5)
    assert made.news == (ScheduleNews("disabled", bad.error, 3),)
    assert made.look == off.back_at == T0 + 5 + 10 * MINUTE
    assert look(off, T0 + 2 * MINUTE).jobs == ()


def test_one_success_resets_the_failures() -> None:
    there = ended(plan(max_failures=3), FAILED, FAILED, DONE, FAILED, FAILED)
    assert (there.enabled, there.failures) == (True, 2)


@pytest.mark.parametrize("neither", [CANCELLED, None])
def test_cancelled_and_deleted_runs_are_neither_success_nor_failure(neither: SeenRun | None) -> None:
    there = ended(plan(max_failures=3), FAILED, neither, FAILED, neither)
    assert (there.enabled, there.failures) == (True, 2)
    assert not ended(there, FAILED).enabled


def test_a_max_failures_of_zero_never_disables() -> None:
    there = ended(plan(max_failures=0), *[FAILED] * 20)
    assert (there.enabled, there.failures) == (True, 20)


def test_backfills_do_not_count() -> None:
    """They run occurrences of the past: their failures do not disable the schedule, and their successes prove
    nothing.
    """
    there = ended(plan(max_failures=2), FAILED)
    bad = replace(there, open=(run(1, what="backfilled"), run(2, T0 + 1, what="backfilled")))
    settled = look(bad, T0 + 2, FAILED).plan
    assert (settled.enabled, settled.failures) == (True, 1)
    assert look(replace(bad, failures=1), T0 + 2, DONE).plan.failures == 1
    forced = replace(there, open=(run(1, what="triggered"),))
    assert not look(forced, T0 + 2, FAILED).plan.enabled


def test_failures_after_the_schedule_was_disabled() -> None:
    """A run that was still open then is counted and recorded, and changes nothing else."""
    there = opened(plan(max_failures=2, overlap="allow"), *(run(n, T0 + n) for n in range(4)))
    off = look(there, T0 + 10, FAILED).plan
    assert (off.enabled, off.failures, off.trips, off.back_at) == (False, 4, 1, T0 + 10 + 10 * MINUTE)
    by_hand = disable(opened(plan(max_failures=1), run(1)), T0, "tired of it")
    still = look(by_hand, T0 + 10, FAILED)
    assert (still.plan.off, still.plan.note, still.plan.failures) == ("operator", "tired of it", 1)
    assert still.news == ()
    assert still.plan.back_at is None


def test_the_pause_before_a_trial_doubles_up_to_six_hours() -> None:
    there, now, pauses = plan(max_failures=2), T0, list[int]()
    there = ended(there, FAILED, FAILED, now=now)
    for _ in range(8):
        assert there.back_at is not None
        pauses.append((there.back_at - now) // MINUTE)
        assert look(there, there.back_at - 1).plan.enabled is False
        now = there.back_at
        made = look(there, now)
        assert made.news == (ScheduleNews("enabled", "on trial"),)
        assert (made.plan.enabled, made.plan.trial, made.plan.off) == (True, True, "")
        there = ended(made.plan, FAILED, now=now)
        assert not there.enabled
    assert pauses == [10, 20, 40, 80, 160, 320, 360, 360]


def test_a_pause_longer_than_six_hours_does_not_change() -> None:
    there = ended(plan(max_failures=1, reenable_after=24 * HOUR), FAILED)
    for trip in range(3):
        assert there.back_at == T0 + trip * 24 * HOUR + 24 * HOUR
        there = ended(look(there, there.back_at).plan, FAILED, now=there.back_at)


def test_occurrences_during_the_pause_are_not_run_later() -> None:
    off = ended(plan(max_failures=1, misfire="all"), FAILED)
    back = look(off, T0 + 10 * MINUTE)
    assert (back.runs, back.plan.watermark, back.plan.due) == ((), T0 + 10 * MINUTE, T0 + 11 * MINUTE)


def _on_trial() -> SchedulePlan:
    off = ended(plan(max_failures=3, mode="triggered"), FAILED, FAILED, FAILED)
    assert off.back_at is not None
    return look(off, off.back_at).plan


def test_one_run_decides_the_trial() -> None:
    good = ended(_on_trial(), DONE)
    assert (good.enabled, good.trial, good.trips, good.failures) == (True, False, 0, 0)
    assert not ended(_on_trial(), FAILED).enabled
    open_still = ended(_on_trial(), CANCELLED, None)
    assert (open_still.enabled, open_still.trial, open_still.trips) == (True, True, 1)
    assert not ended(open_still, FAILED).enabled


def test_with_a_pause_of_zero_a_user_must_enable_the_schedule() -> None:
    there = ended(plan(max_failures=1, reenable_after=0), FAILED)
    assert (there.enabled, there.back_at) == (False, None)
    assert look(there, T0 + 1000 * HOUR).plan == there


def test_a_pause_that_was_changed_meanwhile_applies() -> None:
    there = ended(plan(max_failures=1), FAILED)
    shorter = revise(there, definition(max_failures=1, reenable_after=MINUTE), T0, owner="user")
    assert look(shorter, T0 + SECOND).look == T0 + SECOND + MINUTE
    never = revise(there, definition(max_failures=1, reenable_after=0), T0, owner="user")
    assert look(never, T0 + HOUR).plan.back_at is None
    assert not look(never, T0 + HOUR).plan.enabled


def test_a_clock_that_goes_back_does_not_extend_the_pause() -> None:
    there = ended(plan(max_failures=1), FAILED)
    assert look(there, T0 - 24 * HOUR).plan.back_at == T0 - 24 * HOUR + 10 * MINUTE


def test_enabling_resets_failures_and_pause() -> None:
    on = enable(ended(plan(max_failures=2), FAILED, FAILED), T0 + MINUTE)
    assert (on.enabled, on.off, on.note, on.failures, on.trips, on.trial, on.back_at) == (
        True, "", "", 0, 0, False, None,
    )  # fmt: skip
    assert ended(on, FAILED).enabled
    once = enable(ended(plan(max_failures=2), FAILED), T0 + MINUTE)
    assert (once.failures, once.due) == (0, T0 + MINUTE)
    tried = enable(_on_trial(), T0 + HOUR)
    assert (tried.trial, tried.failures) == (False, 0)


# ---- continuous -----------------------------------------------------------------------------------


def test_continuous_runs_follow_each_other() -> None:
    there = plan(mode="continuous", min_pause=5 * SECOND)
    made = look(there, T0)
    assert (words(made.runs), made.plan.due, len(made.plan.open)) == (["fired"], None, 1)
    assert look(made.plan, T0 + HOUR).jobs == ()
    end = T0 + 100
    rested = look(made.plan, T0 + SECOND, SeenRun(state=State.SUCCEEDED, ended=end))
    assert (rested.jobs, rested.plan.due, rested.look) == ((), end + 5 * SECOND, end + 5 * SECOND)
    assert look(rested.plan, end + 5 * SECOND - 1).jobs == ()
    assert len(look(rested.plan, end + 5 * SECOND).jobs) == 1
    long_ago = look(made.plan, T0 + HOUR, SeenRun(state=State.DEAD, ended=T0 + MINUTE))
    assert words(long_ago.runs) == ["fired", "fired"]


def test_continuous_runs_have_their_own_times() -> None:
    """Also while the clock stands still or goes back."""
    there, at, new_id = plan(mode="continuous"), list[int](), ids()
    for now in (T0, T0, T0 - HOUR, T0 - HOUR + 1, T0 + 1, T0 + MINUTE):
        made = look(there, now, SeenRun(state=State.SUCCEEDED, ended=now), new_id=new_id)
        at += [each.at for each in made.plan.open]
        there = made.plan
    assert len(set(at)) == 6
    assert at == sorted(at)


def test_a_continuous_schedule_does_not_wait_for_a_clock_that_went_back() -> None:
    there = look(plan(mode="continuous", min_pause=5 * SECOND), T0).plan
    made = look(there, T0 - HOUR, SeenRun(state=State.SUCCEEDED, ended=T0))
    assert made.plan.due == T0 - HOUR + 5 * SECOND
    waits = look(there, T0, SeenRun(state=State.SUCCEEDED, ended=T0)).plan
    assert look(waits, T0 - HOUR).look == T0 - HOUR + 5 * SECOND


def test_a_continuous_schedule_disabled_and_enabled_during_a_run() -> None:
    there = look(plan(mode="continuous", min_pause=MINUTE), T0).plan
    off = disable(there, T0 + 1)
    assert look(off, T0 + SECOND).jobs == ()
    ended_off = look(off, T0 + SECOND, SeenRun(state=State.SUCCEEDED, ended=T0 + SECOND))
    assert (ended_off.plan.due, ended_off.plan.open, ended_off.look) == (None, (), None)
    on = enable(ended_off.plan, T0 + 2 * SECOND)
    assert on.due == T0 + SECOND + MINUTE  # the pause is kept
    assert enable(ended_off.plan, T0 + HOUR).due == T0 + HOUR
    on_again = enable(off, T0 + 2)
    assert (on_again.due, look(on_again, T0 + 3).jobs) == (None, ())
    assert look(on_again, T0 + HOUR, SeenRun(state=State.SUCCEEDED, ended=T0 + 4)).jobs != ()


def test_a_continuous_schedule_that_failures_disabled_comes_back() -> None:
    there = look(plan(mode="continuous", max_failures=1, min_pause=20 * MINUTE), T0).plan
    off = look(there, T0, SeenRun(state=State.DEAD, ended=T0)).plan
    assert (off.enabled, off.due) == (False, None)
    back = look(off, T0 + 10 * MINUTE)
    assert (back.plan.trial, back.jobs, back.plan.due) == (True, (), T0 + 20 * MINUTE)


def test_a_change_of_mode_keeps_open_runs() -> None:
    there = opened(new_plan(definition(), T0), run(1))
    continuous = revise(there, definition(mode="continuous"), T0 + 1, owner="user")
    assert (continuous.due, continuous.rule) == (None, None)
    made = step(NAME, continuous, T0 + 2, {run(1).job: DONE}, ids())
    assert len(made.jobs) == 1
    back = revise(made.plan, definition(), T0 + 3, owner="user")
    assert back.due == T0 + 3 + MINUTE
