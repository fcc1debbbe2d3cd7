"""Which occurrences become jobs: misfire, lateness, overlap, open runs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from mainspring.schedules.plan import ScheduleNews, SchedulePlan
from mainspring.schedules.rules import Cron, Every, RuleWindow, make_window
from tests.unit.schedule_samples import (
    HOUR,
    MINUTE,
    RUNS,
    SECOND,
    T0,
    WAITS,
    look,
    opened,
    plan,
    run,
    told,
    words,
)

FIRED = ["fired"]
MISSED = ["missed"]
DUE = T0 + MINUTE
LATE = DUE + 2 * MINUTE + 31 * SECOND
"""Three are due by then, and each of them is late."""
SOON = DUE + 2 * MINUTE + 5 * SECOND
"""Three are due by then, the last of them is not late."""

CASES = [
    # misfire, overlap, when, what becomes of those that are due, of how many it is told that they were missed
    ("once", "skip", DUE, FIRED, 0),
    ("skip", "skip", DUE + 30 * SECOND, FIRED, 0),
    ("skip", "skip", DUE + 30 * SECOND + 1, MISSED, 1),
    ("once", "skip", DUE + 30 * SECOND + 1, FIRED, 1),
    ("all", "skip", DUE + 30 * SECOND + 1, FIRED, 1),
    ("skip", "skip", LATE, 3 * MISSED, 3),
    ("skip", "skip", SOON, [*2 * MISSED, *FIRED], 2),
    ("once", "skip", LATE, [*2 * MISSED, *FIRED], 3),
    ("once", "skip", SOON, [*2 * MISSED, *FIRED], 2),
    ("all", "skip", LATE, 3 * FIRED, 3),
    ("all", "queue", LATE, 3 * FIRED, 3),
    ("all", "allow", LATE, 3 * FIRED, 3),
    ("all", "cancel_previous", LATE, [*2 * MISSED, *FIRED], 3),
    ("once", "cancel_previous", LATE, [*2 * MISSED, *FIRED], 3),
    ("skip", "cancel_previous", LATE, 3 * MISSED, 3),
]


@pytest.mark.parametrize(("misfire", "overlap", "now", "become", "missed"), CASES)
def test_each_misfire_fires_and_records_its_occurrences(
    misfire: str, overlap: str, now: int, become: list[str], missed: int
) -> None:
    """Each occurrence has one record. Fired occurrences have a job, and late ones are reported."""
    made = look(plan(misfire=misfire, overlap=overlap), now)
    assert words(made.runs) == become
    assert [run.at for run in made.runs] == [DUE + n * MINUTE for n in range(len(become))]
    assert [job.id for job in made.jobs] == [run.job for run in made.runs if run.job] == [o.job for o in made.plan.open]
    assert made.news == ((ScheduleNews("missed", misfire, missed),) if missed else ())
    assert made.plan.watermark == DUE + (len(become) - 1) * MINUTE
    assert made.plan.due == made.plan.watermark + MINUTE


OVERLAPS = [
    # overlap, misfire, how the open run is seen, of one that is due, of three that are
    ("skip", "all", RUNS, ["skipped"], 3 * ["skipped"]),
    ("skip", "once", RUNS, ["skipped"], ["missed", "missed", "skipped"]),
    ("skip", "once", WAITS, ["skipped"], ["missed", "missed", "skipped"]),
    ("skip", "skip", RUNS, ["skipped"], 3 * MISSED),
    ("queue", "once", RUNS, FIRED, ["missed", "missed", "fired"]),
    ("queue", "all", RUNS, FIRED, 3 * FIRED),
    ("allow", "once", RUNS, FIRED, ["missed", "missed", "fired"]),
    ("allow", "all", WAITS, FIRED, 3 * FIRED),
    ("cancel_previous", "once", RUNS, FIRED, ["missed", "missed", "fired"]),
    ("cancel_previous", "all", RUNS, FIRED, ["missed", "missed", "fired"]),
    ("cancel_previous", "skip", RUNS, FIRED, 3 * MISSED),
]


@pytest.mark.parametrize(("overlap", "misfire", "seen", "one", "three"), OVERLAPS)
def test_overlap_with_an_open_run(overlap: str, misfire: str, seen: object, one: list[str], three: list[str]) -> None:
    there = opened(plan(overlap=overlap, misfire=misfire), run(1))
    for now, become in ((DUE, one), (LATE, three)):
        made = look(there, now, seen)  # type: ignore[arg-type]
        assert words(made.runs) == become
        new = tuple(job.id for job in made.jobs)
        assert tuple(each.job for each in made.plan.open) == (run(1).job, *new)
        assert made.cancel == ((run(1).job,) if overlap == "cancel_previous" and new else ())


def test_records_of_skipped_occurrences_have_the_reason() -> None:
    there = opened(plan(), run(1))
    made = look(there, DUE)
    ((_, record),) = told(made.runs)
    assert record.note.endswith("has not ended")
    assert made.news == (ScheduleNews("skipped", record.note, 1),)
    assert record.made == DUE


def test_a_run_that_ended_does_not_block_the_next() -> None:
    """Ends of runs are read before the decision."""
    made = look(opened(plan(), run(1)), DUE, None)
    assert words(made.runs) == ["fired", "fired"]
    assert len(made.plan.open) == 1


def test_no_more_than_a_hundred_run_or_wait() -> None:
    crowd = tuple(run(n, T0 - n) for n in range(99))
    for overlap in ("queue", "allow"):
        made = look(opened(plan(overlap=overlap, misfire="all"), *crowd), LATE)
        assert words(made.runs) == ["fired", "skipped", "skipped"]
        assert told(made.runs)[1][1].note == "100 runs have not ended"


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
@pytest.mark.parametrize("many", [100, 101, 102, 5_000])
def test_of_very_many_missed_occurrences_a_hundred_have_records(misfire: str, many: int) -> None:
    """The first record counts the others, so that the counts add up to what was due."""
    made = look(plan(misfire=misfire, history=1000), T0 + many * MINUTE + 45 * SECOND)
    records = told(made.runs)
    assert sum(record.count for _, record in records) == many
    assert len(records) == min(many, 101)
    assert records[0][0] == DUE
    assert records[0][1].count == 1 + max(0, many - 101)
    assert [at for at, _ in records[-100:]] == [T0 + (many - n) * MINUTE for n in reversed(range(100))]
    assert len(made.jobs) == {"skip": 0, "once": 1, "all": 100}[misfire]
    assert made.news == (ScheduleNews("missed", misfire, many),)


def test_missed_cron_occurrences_are_counted_up_to_a_thousand() -> None:
    made = look(plan(cron="* * * * *"), T0 + 3000 * MINUTE)
    ((at, first), *others) = told(made.runs)
    assert at == T0
    assert first.note.endswith("more occurrences than this record counts")
    assert first.count == 901
    assert not any("more" in record.note for _, record in others)


def test_an_interval_shorter_than_the_interval_of_the_scheduler() -> None:
    """The last occurrence fires. The others are recorded as coalesced and not as missed."""
    made = look(plan(every=100_000), T0 + SECOND)
    assert words(made.runs) == [*9 * ["coalesced"], "fired"]
    assert made.news == ()
    assert made.plan.due == T0 + 1_100_000
    made = look(plan(every=1_000, misfire="all", overlap="allow"), T0 + SECOND)
    assert sum(record.count for _, record in told(made.runs)) == 1000
    assert len(made.jobs) == 100
    assert made.news == ()


def test_nothing_fires_at_or_before_the_watermark() -> None:
    """Whatever due time is stored: after a clock that went back, or with other time zone data."""
    stale = replace(plan(misfire="all"), watermark=DUE + MINUTE, due=DUE)
    made = look(stale, DUE + 10 * SECOND)
    assert (made.runs, made.jobs) == ((), ())
    assert made.plan.due == DUE + 2 * MINUTE
    made = look(stale, DUE + 2 * MINUTE)
    assert [each.at for each in made.runs] == [DUE + 2 * MINUTE]


def test_a_clock_that_goes_back_fires_nothing_twice() -> None:
    there, fired = plan(misfire="all", overlap="allow"), list[int]()
    for now in (DUE, DUE - HOUR, T0, DUE, DUE + MINUTE, DUE - 1, DUE + MINUTE, DUE + 3 * MINUTE):
        made = look(there, now)
        fired += [each.at for each in made.runs]
        there = made.plan
    assert fired == [DUE + n * MINUTE for n in range(4)]


def _in_zone(there: SchedulePlan, tz: str) -> SchedulePlan:
    return replace(there, rule=RuleWindow(Cron.of("0 3 * * *", tz=tz)))


def test_a_due_time_computed_with_other_time_zone_data_fires() -> None:
    """Two machines disagree on when it is three o'clock. The stored time is due. Each machine continues after it."""
    for zones in (("UTC", "Etc/GMT-1"), ("Etc/GMT+1", "UTC"), ("Asia/Tokyo", "Europe/Kyiv")):
        there, fired = plan(cron="0 3 * * *", tz=zones[0]), list[int]()
        for hour in range(24 * 30):
            now = T0 + hour * HOUR
            made = look(_in_zone(there, zones[hour // 7 % 2]), now, None)
            fired += [each.at for each in made.plan.open]
            there = made.plan
        assert all(after - before > 16 * HOUR for before, after in pairwise(fired)), fired
        assert len(fired) >= 29


def test_after_the_last_occurrence_nothing_is_due() -> None:
    """The last one is a single moment or the end of a window."""
    made = look(plan(at=DUE), DUE)
    assert words(made.runs) == FIRED
    assert (made.plan.due, made.plan.watermark) == (None, DUE)
    made = look(plan(rule=make_window(Every(MINUTE), end=DUE + MINUTE)), DUE + HOUR)
    assert (words(made.runs), made.plan.due) == (FIRED, None)


def test_a_moment_in_the_past_when_it_is_stored_fires_if_it_is_not_late() -> None:
    for at in (T0, T0 - 1, T0 - 30 * SECOND):
        assert plan(at=at).due == at
    assert plan(at=T0 - 30 * SECOND - 1).due is None
    assert plan(rule=make_window(Every(MINUTE), end=T0)).due is None


def test_a_thousand_intervals_do_not_drift() -> None:
    there, now, at = plan(), T0, list[int]()
    while len(at) < 1000:
        now += 7_300_000  # never at the very moment
        made = look(there, now, None)
        at += [each.at for each in made.runs if each.job in {job.id for job in made.jobs}]
        there = made.plan
    assert at == [T0 + n * MINUTE for n in range(1, 1001)]
