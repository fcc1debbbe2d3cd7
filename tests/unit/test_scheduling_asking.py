"""Runs on request: triggers, refusals, backfills; and jobs that the store did not accept."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.schedules.plan import (
    ScheduleNews,
    SchedulePlan,
    ScheduleStep,
    SeenRun,
    TriggerRefusal,
    backfill,
    disable,
    mark_orphaned,
    postpone,
    reject_jobs,
    skip_taken_keys,
    trigger,
    use_existing_job,
)
from tests.unit.schedule_samples import (
    DONE,
    FAILED,
    MINUTE,
    NAME,
    RUNS,
    SECOND,
    T0,
    ended,
    ids,
    look,
    opened,
    plan,
    run,
    told,
    words,
)

DUE = T0 + MINUTE


def asked(there: SchedulePlan, now: int = T0 + 1, seen: SeenRun | None = RUNS, **options: Any) -> ScheduleStep:
    made = trigger(NAME, there, now, dict.fromkeys((o.job for o in there.open), seen), ids(), **options)
    assert isinstance(made, ScheduleStep), made
    return made


def refused(there: SchedulePlan, now: int = T0 + 1, seen: SeenRun | None = RUNS) -> TriggerRefusal:
    made = trigger(NAME, there, now, dict.fromkeys((o.job for o in there.open), seen), ids())
    assert isinstance(made, TriggerRefusal)
    return made


@pytest.mark.parametrize("mode", ["scheduled", "triggered", "continuous"])
def test_a_trigger_makes_a_run_now(mode: str) -> None:
    there = plan(mode=mode)
    made = asked(there)
    assert words(made.runs) == ["triggered"]
    assert [each.job for each in made.plan.open] == [job.id for job in made.jobs]
    assert (made.plan.due, made.plan.watermark) == (there.due, there.watermark)
    assert made.look is not None


def test_a_triggered_schedule_is_never_due() -> None:
    there = plan(mode="triggered")
    assert (there.due, look(there, T0 + 1000 * MINUTE).jobs, look(there, T0 + 1).look) == (None, (), None)


def test_a_trigger_of_a_disabled_schedule_is_refused_with_the_reason() -> None:
    assert refused(disable(plan(), T0, "we move")).why == "it is disabled: we move"
    failed = ended(plan(max_failures=1), FAILED)
    assert refused(failed).why == "it was disabled after 1 runs failed in a row: ValueError: no"
    assert refused(mark_orphaned(plan(), T0, "2.0")).why.startswith("it is orphaned")
    for there in (disable(plan(), T0), failed):
        assert len(asked(there, force=True).jobs) == 1


def test_earlier_failures_do_not_refuse_a_trigger() -> None:
    failed = ended(plan(max_failures=1), FAILED)
    made = asked(failed, T0 + 10 * MINUTE)
    assert made.plan.trial
    assert made.news == (ScheduleNews("enabled", "on trial"),)


@pytest.mark.parametrize(
    ("overlap", "refuses"), [("skip", True), ("queue", False), ("allow", False), ("cancel_previous", False)]
)
def test_a_trigger_obeys_overlap(overlap: str, refuses: bool) -> None:
    there = opened(plan(overlap=overlap), run(1))
    if refuses:
        refusal = refused(there)
        assert (refusal.why.split(" ", 2)[2], refusal.job) == ("has not ended", run(1).job)
        assert len(asked(there, force=True).plan.open) == 2
        assert len(asked(there, seen=DONE).plan.open) == 1
    else:
        assert asked(there).cancel == ((run(1).job,) if overlap == "cancel_previous" else ())


def test_a_continuous_schedule_has_one_run_at_a_time() -> None:
    for overlap in ("skip", "allow"):
        there = look(plan(mode="continuous", overlap=overlap), T0).plan
        assert refused(there).job == there.open[0].job
        forced = asked(there, force=True)
        assert [bucket.limit for bucket in forced.jobs[0].buckets] == ["schedules/at-once"]  # it waits


def test_a_trigger_between_two_continuous_runs() -> None:
    there = look(look(plan(mode="continuous", min_pause=MINUTE), T0).plan, T0 + 1, replace(DONE, ended=T0 + 1)).plan
    made = asked(there, T0 + SECOND)
    assert look(made.plan, T0 + 2 * MINUTE).jobs == ()  # the triggered one still runs
    again = look(made.plan, T0 + 2 * MINUTE, replace(DONE, ended=T0 + 2 * MINUTE))
    assert again.plan.due == T0 + 3 * MINUTE


def test_a_trigger_with_too_many_open_runs_is_refused() -> None:
    there = opened(plan(overlap="allow"), *(run(n, T0 - n) for n in range(100)))
    assert refused(there).why == "100 runs have not ended"


def test_triggers_have_their_own_times() -> None:
    """Never the time of an occurrence or of an earlier trigger, whatever the clock does."""
    there = plan(overlap="allow", mode="scheduled", cron="* * * * *")
    at = []
    for now in (DUE, DUE, DUE - SECOND, DUE - MINUTE, DUE + MINUTE, DUE + MINUTE):
        made = trigger(NAME, replace(there, open=()), now, {}, ids())
        assert isinstance(made, ScheduleStep)
        at.append(made.plan.open[0].at)
        there = made.plan
    assert at == [DUE + 1, DUE + 2, DUE + 3, DUE + 4, DUE + MINUTE + 1, DUE + MINUTE + 2]
    fired = look(replace(there, open=()), DUE + MINUTE)
    assert not {each.at for each in fired.runs} & set(at)


def test_a_trigger_after_the_clock_went_back_is_the_latest_run() -> None:
    """So its record is not the first to be pruned."""
    there = look(plan(), DUE).plan
    assert asked(replace(there, open=()), T0 - MINUTE).plan.open[0].at == DUE + 1


def test_a_trigger_has_no_jitter() -> None:
    assert asked(plan(jitter=MINUTE)).jobs[0].run_at is None


# ---- backfills ------------------------------------------------------------------------------------


def test_a_backfill_runs_each_occurrence_once() -> None:
    there = replace(plan(jitter=MINUTE), watermark=T0)
    moments = [T0 - 3 * MINUTE, T0 - MINUTE, T0 - 2 * MINUTE, T0 - MINUTE]
    made = backfill(NAME, there, T0, moments, ids())
    assert isinstance(made, ScheduleStep)
    assert told(made.runs)[0][0] == T0 - 3 * MINUTE
    assert words(made.runs) == 3 * ["backfilled"]
    assert [each.at for each in made.plan.open] == [T0 - n * MINUTE for n in (3, 2, 1)]
    assert [each.job for each in made.plan.open] == [job.id for job in made.jobs]
    assert (made.plan.watermark, made.plan.due) == (T0, there.due)
    assert {job.run_at for job in made.jobs} == {None}


def test_a_backfill_of_too_many_occurrences_is_refused() -> None:
    made = backfill(NAME, opened(plan(), run(1)), T0, range(100), ids())
    assert made == TriggerRefusal("1 runs have not ended and 100 would be added; the maximum is 100")


def test_backfills_are_not_cancelled_by_later_runs() -> None:
    """And not by each other."""
    made = backfill(NAME, plan(overlap="cancel_previous"), T0, [1, 2], ids())
    assert isinstance(made, ScheduleStep)
    assert made.cancel == ()
    fired = look(made.plan, DUE)
    assert (len(fired.jobs), fired.cancel) == (1, ())
    new_id = iter([b"n" * 16]).__next__
    next_one = look(fired.plan, DUE + MINUTE, new_id=new_id)
    assert next_one.cancel == (fired.jobs[0].id,)


# ---- what the store said --------------------------------------------------------------------------


def test_rejected_jobs_are_recorded() -> None:
    there = opened(plan(misfire="all", overlap="queue"), run(1))
    late = DUE + MINUTE + 40 * SECOND
    made = reject_jobs(look(there, late, DONE), late, "the queue drains")
    assert words(made.runs) == ["fired", "rejected", "rejected"]
    assert [each.job for each in made.runs] == [run(1).job, None, None]
    assert (made.jobs, made.plan.open, made.plan.watermark) == ((), (), DUE + MINUTE)
    assert made.news == (ScheduleNews("missed", "all", 2), ScheduleNews("skipped", "the queue drains", 2))
    assert told(made.runs)[1][1].note == "the queue drains"


def test_a_continuous_schedule_tries_again_after_a_rejected_job() -> None:
    there = plan(mode="continuous", min_pause=0)
    assert reject_jobs(look(there, T0), T0, "no").plan.due == T0 + SECOND
    made = look(there, T0)
    held = skip_taken_keys(made.plan, T0, {made.jobs[0].id: b"h" * 16})
    assert (held.plan.open, held.plan.due, held.look) == ((), T0 + SECOND, T0 + SECOND)
    assert use_existing_job(look(there, T0), T0, made.runs[0].at).plan.due == T0 + SECOND


def test_an_occurrence_whose_key_another_job_holds_is_skipped() -> None:
    made = look(plan(), DUE)
    said = skip_taken_keys(made.plan, DUE, {made.jobs[0].id: b"h" * 16})
    ((at, record),) = told(said.runs)
    assert (at, record.what, said.runs[0].job, said.plan.open) == (DUE, "skipped", None, ())
    assert record.note == "job 68686868-6868-6868-6868-686868686868 holds its unique key"
    assert said.news == (ScheduleNews("skipped", "another job holds its unique key", 1),)


def test_an_occurrence_that_has_a_job_already_is_left_out() -> None:
    """A backfill ran it while it was due. The other due occurrences fire, and the schedule goes on."""
    made = look(plan(misfire="all", overlap="queue"), DUE + 2 * MINUTE)
    less = use_existing_job(made, DUE + 2 * MINUTE, DUE + MINUTE)
    assert [each.at for each in less.runs] == [DUE, DUE + 2 * MINUTE]
    assert [job.id for job in less.jobs] == [each.job for each in less.plan.open] == [each.job for each in less.runs]
    assert (less.plan.due, less.plan.watermark) == (made.plan.due, made.plan.watermark)


def test_an_occurrence_without_space_in_its_queue_stays_due() -> None:
    there = plan()
    made = postpone(there, DUE)
    assert (made.plan, made.look, made.jobs, made.runs) == (there, DUE + SECOND, (), ())
