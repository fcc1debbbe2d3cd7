"""What a simulation is held to: judged by what was exchanged, with a model of its own, not by the code of a step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import takewhile

from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch
from mainspring.schedules.plan import Definition, OccurrenceRecord, SchedulePlan, decode, decode_run
from mainspring.schedules.records import ScheduleRun, ScheduleSwap
from mainspring.states import FINAL, State
from mainspring.stores.base import Store
from tests.unit.schedule_samples import HOUR, MINUTE

PAUSES = [10 * MINUTE, 20 * MINUTE, 40 * MINUTE, 80 * MINUTE, 160 * MINUTE, 320 * MINUTE, 6 * HOUR]
"""For which failures disable a schedule, time after time."""
DECIDED = ("fired", "skipped", "coalesced", "missed", "rejected")


class Model:
    """Failures of one schedule, counted anew."""

    def __init__(self) -> None:
        self.on, self.failures, self.trips, self.trial = True, 0, 0, False
        self.by_failures = False
        self.off_at = 0.0

    def heard(self, state: State | None, most: int) -> None:
        if state is State.SUCCEEDED:
            self.failures, self.trips, self.trial = 0, 0, False
        elif state is State.DEAD:
            self.failures += 1
            if self.on and most and (self.trial or self.failures >= most):
                self.on, self.by_failures, self.trial = False, True, False
                self.trips += 1

    def enabled(self) -> None:
        self.on, self.failures, self.trips, self.trial, self.by_failures = True, 0, 0, False, False

    def disabled(self) -> None:
        self.on, self.trial, self.by_failures = False, False, False


class Judge:
    """Hears of every exchange, start and end, and asserts."""

    def __init__(self, definitions: dict[str, Definition], own_time: Callable[[], float]) -> None:
        self.told = Counter[str]()
        self._plans: dict[str, SchedulePlan] = {}
        self._models = {name: Model() for name in definitions}
        self._jobs: dict[str, dict[int, bytes]] = defaultdict(dict)
        self._owners: dict[bytes, str] = {}
        self._ends: dict[bytes, State | None] = {}
        self._deleted: set[bytes] = set()
        self._running: dict[str, set[bytes]] = defaultdict(set)
        self._decided: dict[str, dict[int, int]] = defaultdict(dict)
        self._rests: dict[str, float] = {}
        """When a run of it ended last, by the time that no clock shows."""
        self._own_time = own_time
        self._now = self._latest = 0

    # ---- what it hears ----------------------------------------------------------------------------

    def owner(self, job: bytes) -> str:
        return self._owners[job]

    def live(self, name: str) -> list[bytes]:
        return [job for job in self._jobs[name].values() if job not in self._ends]

    def passed(self, name: str) -> list[int]:
        """Occurrences that were decided on."""
        return sorted(self._decided[name])

    def has_job(self, name: str, at: int) -> bool:
        return at in self._jobs[name]

    def started(self, job: bytes) -> None:
        name = self._owners[job]
        assert job not in self._ends, f"{name}: a job that has ended was started"
        self._running[name].add(job)
        if self._plans[name].definition.overlap != "allow":
            assert len(self._running[name]) == 1, f"{name}: {len(self._running[name])} runs at once"

    def ended(self, job: bytes, state: State) -> None:
        name = self._owners[job]
        self._running[name].discard(job)
        if job not in self._ends:
            self._ends[job] = state
            self._rests[name] = self._own_time()

    def deleted(self, job: bytes) -> None:
        self._deleted.add(job)

    def exchanged(self, asked: ScheduleSwap, batch: JobBatch | None, now: int, by: str) -> None:
        assert asked.doc is not None
        name, after = asked.name, decode(asked.doc)
        before = self._plans.get(name)
        self._plans[name] = after
        self._now, self._latest = now, max(now, self._latest)
        if before is None:
            return
        new = {job.id for job in batch.jobs} if batch is not None else set[bytes]()
        records = [(run, decode_run(run)) for run in asked.runs]
        self._one_job_each(name, before, records, new)
        self._one_record_each(name, before, after, records, new, by)
        self._failures(name, before, after, [each for each in records if each[0].job not in new], now, by)
        self._no_overlap(name, after, records, new)
        self._pauses(name, after, records, new)

    # ---- what it asserts --------------------------------------------------------------------------

    def _one_job_each(
        self, name: str, before: SchedulePlan, records: list[tuple[ScheduleRun, OccurrenceRecord]], new: set[bytes]
    ) -> None:
        made = {run.at: run.job for run, _ in records if run.job is not None and run.job in new}
        assert set(made.values()) == new, f"{name}: jobs without a record"
        for at, job in made.items():
            assert at not in self._jobs[name], f"{name}: {at} got a second job"
            self._jobs[name][at] = job
            self._owners[job] = name
        for run, record in records:
            if run.job in new and record.what == "fired":
                assert run.at > before.watermark, f"{name}: {run.at} was fired, at or before {before.watermark}"

    def _one_record_each(
        self,
        name: str,
        before: SchedulePlan,
        after: SchedulePlan,
        records: list[tuple[ScheduleRun, OccurrenceRecord]],
        new: set[bytes],
        by: str,
    ) -> None:
        """All that was due has come to something, once."""
        if by != "scheduler":
            return
        decided = {
            run.at: record.count
            for run, record in records
            if record.what in DECIDED and (not run.job or run.job in new)
        }
        self.told.update(record.what for run, record in records if run.at in decided)
        again = decided.keys() & self._decided[name].keys()
        assert not again, f"{name}: {again} were decided on twice"
        self._decided[name] |= decided
        rule = before.rule
        if before.definition.mode != "scheduled" or rule is None or before.due is None or not before.enabled:
            return
        walked = [before.due, *takewhile(lambda at: after.due is None or at < after.due, rule.walk(before.due))]
        due = [] if before.due == after.due else [at for at in walked if after.due is not None or at <= self._now]
        there = {at for at in due if at in self._jobs[name] and self._jobs[name][at] not in new}  # backfilled
        assert set(decided) <= set(due), f"{name}: {set(decided) - set(due)} were not due"
        assert sum(decided.values()) == len(due) - len(there), f"{name}: {len(due)} were due, {decided} is told"

    def _failures(
        self,
        name: str,
        before: SchedulePlan,
        after: SchedulePlan,
        settled: list[tuple[ScheduleRun, OccurrenceRecord]],
        now: int,
        by: str,
    ) -> None:
        model, most = self._models[name], before.definition.max_failures
        for run, record in settled:
            if run.job is None:
                continue
            assert run.job in self._ends, f"{name}: a run is said to have ended"
            truth = None if run.job in self._deleted else self._ends[run.job]
            assert record.state in (truth, self._ends[run.job]), f"{name}: {record.state} is told of {truth}"
            if record.what != "backfilled":
                was_on = model.on
                model.heard(record.state, most)
                if was_on and not model.on:
                    self.told["disabled"] += 1
                    model.off_at = self._own_time()
        if not model.on and model.by_failures and after.enabled and by not in ("enable", "disable"):
            rested = self._own_time() - model.off_at >= PAUSES[0] / 1e6 - 1
            assert (before.back_at or 0) <= self._latest or rested, f"{name}: too soon: {before}"
            model.on, model.trial, model.by_failures = True, True, False
            self.told["tried again"] += 1
        if by == "enable":
            model.enabled()
        if by == "disable":
            model.disabled()
        assert (after.enabled, after.failures, after.trips, after.trial) == (
            model.on, model.failures, model.trips, model.trial,
        ), f"{name}: {after}"  # fmt: skip
        if before.enabled and model.by_failures:
            pause = PAUSES[min(max(model.trips, 1), len(PAUSES)) - 1]
            assert after.back_at == after.off_at + pause, f"{name}: not back in {pause}: {after}"

    def _no_overlap(
        self, name: str, after: SchedulePlan, records: list[tuple[ScheduleRun, OccurrenceRecord]], new: set[bytes]
    ) -> None:
        fired = [run for run, record in records if run.job in new and record.what == "fired"]
        if fired and after.definition.overlap == "skip":
            others = [job for job in self.live(name) if job not in new]
            assert not others, f"{name}: fired beside {len(others)}"

    def _pauses(
        self, name: str, after: SchedulePlan, records: list[tuple[ScheduleRun, OccurrenceRecord]], new: set[bytes]
    ) -> None:
        """Unless the run was decided before the clock went back, by a scheduler that was delayed since."""
        fired = any(run.job in new and record.what == "fired" and record.made <= self._now for run, record in records)
        if fired and after.definition.mode == "continuous" and name in self._rests:
            passed = self._own_time() - self._rests[name]
            assert passed * 1e6 >= after.definition.min_pause - 1, f"{name}: too soon, after {passed} s"

    async def rest(self, store: Store) -> None:
        """At the end no run is open, and there is one job and one record for each run that was made."""
        jobs = set[bytes]()
        cursor = None
        while True:
            page = await store.find(Query.everything(), limit=1000, cursor=cursor)
            for row in page.jobs:
                jobs.add(row.id)
                assert row.state in FINAL, row
            cursor = page.cursor
            if cursor is None:
                break
        assert jobs == self._owners.keys() - self._deleted
        for name, plan in self._plans.items():
            assert plan.open == (), f"{name}: {plan.open}"
            kept = {run.at: run.job for run in await store.schedule_runs(name, 1_000_000)}
            assert {at: job for at, job in kept.items() if job} == self._jobs[name]
            assert kept.keys() >= self._decided[name].keys()
            self.told["runs"] += len(kept)
