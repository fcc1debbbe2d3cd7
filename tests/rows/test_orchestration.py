"""O1 to O6: modes, dependencies, blocks and groups of schedules, and what happens after failures."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from mainspring import Mainspring, NotTriggered, ScheduleEvent, Snooze
from mainspring.client.blocking import run as blocking
from mainspring.jobs.lanes import base_of
from mainspring.jobs.query import Query
from mainspring.launch.embedded import EmbeddedWorker
from mainspring.states import State
from mainspring.tasks.task import AsyncTask
from mainspring.testing.app import TestApp
from mainspring.testing.contract.hands import Hand
from tests.rows.crew import LIMIT, until
from tests.rows.scheduling import MONDAY, minutes, staged, whats
from tests.timing import short_settings

Part = AsyncTask[[], None]


class Stage:
    """Schedules that record when they run, and fail on request."""

    def __init__(self, t: TestApp) -> None:
        self.t = t
        self.ran: list[str] = []
        self.broken: set[str] = set()
        self.sleepy: set[str] = set()

    def part(self, name: str, **o: Any) -> Part:
        @self.t.app.task(name=f"parts.{name}", retries=0)
        async def work() -> None:
            self.ran.append(name)
            if name in self.broken:
                raise ValueError(f"{name} is broken")
            if name in self.sleepy:
                raise Snooze("5m")

        self.t.app.schedule(name, **o)(work)
        return work


async def _succeed(t: TestApp, job: bytes) -> None:
    """End a ready job as a worker of another process does: no scheduler of this process hears of it."""
    store = await t.app.client.store()
    [row] = (await store.find(Query(ids=(job,)))).jobs
    hand = await Hand(store, tasks=[row.task]).join()
    claims = await hand.take(10, base_of(row.lane))
    assert [claim.id for claim in claims] == [job]
    await hand.succeed(*claims)


@pytest.fixture
def stage(store_url: str) -> Iterator[Stage]:
    with staged(store_url) as t:
        yield Stage(t)


@pytest.mark.row("O1")
class TestModes:
    def test_a_triggered_schedule_never_runs_by_itself(self, stage: Stage) -> None:
        stage.part("hand", mode="triggered")
        stage.t.advance("30d")
        assert stage.ran == []
        stage.t.schedules.trigger("hand")
        stage.t.advance("30d")
        assert stage.ran == ["hand"]
        assert stage.t.schedules.get("hand").rule == "when it is triggered"

    @pytest.mark.option("schedule.min_pause")
    def test_a_continuous_schedule_runs_again_after_each_run(self, stage: Stage) -> None:
        stage.part("loop", mode="continuous", min_pause="10m")
        stage.t.advance("35m")
        assert minutes(stage.t, "loop") == [0, 10, 20, 30]
        info = stage.t.schedules.get("loop")
        assert (info.rule, info.next) == ("continuously, 10m after each run", MONDAY + timedelta(minutes=40))

    @pytest.mark.stores("postgres", "redis")  # SQLite's time does not go back: see tests/stores/sqlite/test_clock.py
    def test_a_clock_set_back_does_not_delay_a_continuous_schedule(self, stage: Stage) -> None:
        stage.part("loop", mode="continuous", min_pause="10m")
        stage.t.advance("0s")
        stage.t.clock.set(MONDAY - timedelta(days=30))
        stage.t.advance("20m")
        assert len(stage.ran) == 3

    def test_a_clock_set_forward_makes_no_burst(self, stage: Stage) -> None:
        """The pause ends once. Occurrences that are due by the new clock are missed, as after any absence."""
        stage.part("loop", mode="continuous", min_pause="10m")
        stage.part("hand", mode="triggered")
        stage.part("often", every="10m", misfire="skip")
        stage.t.advance("0s")
        stage.t.clock.advance("43205m")
        stage.t.drain()
        assert stage.ran == ["loop", "loop"]
        stage.t.advance("10m")
        assert sorted(stage.ran[2:]) == ["loop", "often"]

    def test_a_continuous_schedule_has_one_run_at_a_time(self, stage: Stage) -> None:
        loop = stage.part("loop", mode="continuous", min_pause="1m")
        stage.t.queues.pause("default")
        stage.t.advance("10m")
        by_hand = loop.enqueue()
        assert len(stage.t.enqueued(loop)) == 2
        stage.t.app.limits.set("schedules/at-once", 0)
        stage.t.queues.resume("default")
        stage.t.drain()
        assert stage.ran == []
        stage.t.app.limits.reset("schedules/at-once")
        stage.t.drain()
        assert by_hand.info().state == "succeeded"


@pytest.mark.row("O2")
@pytest.mark.option("schedule.depends_on")
class TestDependencies:
    def test_a_run_waits_until_every_dependency_has_succeeded_since_its_last_start(self, stage: Stage) -> None:
        a = stage.part("a", every="10m")
        stage.part("b", mode="triggered")
        stage.part("c", every="10m", depends_on=[a, "b"])
        stage.t.advance("20m")
        assert stage.ran == ["a", "a"]
        assert whats(stage.t, "c") == ["waiting", "coalesced"]
        assert stage.t.schedules.get("c").waiting_for == ("b",)
        stage.t.schedules.trigger("b")
        stage.t.drain()
        assert stage.ran[2:] == ["b", "c"]
        stage.t.advance("10m")  # a has run again, and b has not
        assert stage.ran[4:] == ["a"]
        assert stage.t.schedules.status()["c"].waiting_for == ("b",)

    def test_a_failed_dependency_is_no_success(self, stage: Stage) -> None:
        stage.part("a", every="10m", max_failures=0)
        stage.part("b", every="10m", depends_on="a")
        stage.broken.add("a")
        stage.t.advance("20m")
        assert stage.ran == ["a", "a"]
        stage.broken.clear()
        stage.t.advance("10m")
        assert stage.ran[2:] == ["a", "b"]

    def test_jobs_enqueued_by_hand_do_not_wait_and_their_success_counts_for_no_schedule(self, stage: Stage) -> None:
        a = stage.part("a", mode="triggered")
        b = stage.part("b", every="10m", depends_on="a")
        stage.t.advance("10m")
        job = b.enqueue()
        stage.t.drain()
        assert (stage.ran, job.info().state) == (["b"], State.SUCCEEDED)
        a.enqueue()
        stage.t.drain()
        assert stage.ran == ["b", "a"]
        assert stage.t.schedules.get("b").waiting_for == ("a",)
        stage.t.schedules.trigger("a")
        stage.t.drain()
        assert stage.ran == ["b", "a", "a", "b"]
        assert whats(stage.t, "b") == ["fired"]

    def test_a_trigger_is_refused_until_the_dependencies_have_succeeded_and_force_is_not(self, stage: Stage) -> None:
        stage.part("a", mode="triggered")
        stage.part("b", mode="triggered", depends_on="a")
        stage.t.advance("0s")
        with pytest.raises(NotTriggered, match="it waits for 'a' to succeed") as refused:
            stage.t.schedules.trigger("b")
        assert refused.value.job is None
        assert "force=True" in refused.value.hint
        stage.t.schedules.trigger("b", force=True)
        stage.t.schedules.trigger("a")
        stage.t.drain()
        assert sorted(stage.ran) == ["a", "b"]
        stage.t.schedules.trigger("a")
        stage.t.drain()
        stage.t.schedules.trigger("b")
        stage.t.drain()
        assert stage.ran[2:] == ["a", "b"]
        with pytest.raises(NotTriggered, match="waits for 'a'"):
            stage.t.schedules.trigger("b")

    def test_a_trigger_knows_a_success_that_no_scheduler_has_seen(self, stage: Stage) -> None:
        """``result()`` returns when the job has ended, which may be before a scheduler looks."""
        stage.part("a", mode="triggered")
        stage.part("b", mode="triggered", depends_on="a")
        stage.t.advance("0s")
        job = stage.t.schedules.trigger("a")
        blocking("end", _succeed(stage.t, job.id.bytes))
        stage.t.schedules.trigger("b")
        assert stage.t.schedules.get("a").last_success is not None

    def test_a_waiting_occurrence_is_visible(self, stage: Stage) -> None:
        stage.part("a", mode="triggered")
        stage.part("b", every="10m", depends_on="a")
        stage.t.advance("20m")
        info = stage.t.schedules.get("b")
        assert (info.waiting_for, info.waiting_since, info.waiting) == (("a",), MONDAY + timedelta(minutes=10), ())
        coalesced, waiting = stage.t.schedules.history("b")
        assert (waiting.what, waiting.job, waiting.note) == ("waiting", None, "waits for 'a' to succeed")
        at = (MONDAY + timedelta(minutes=10)).replace(tzinfo=UTC)
        assert coalesced.note == f"the occurrence of {at.isoformat(' ', 'seconds')} still waits for other schedules"
        stage.t.schedules.trigger("a")
        stage.t.drain()
        info = stage.t.schedules.get("b")
        assert (info.waiting_for, info.waiting_since) == ((), None)
        [first, _] = stage.t.schedules.history("b")[::-1]
        assert (first.what, first.state, first.at) == ("fired", "succeeded", waiting.at)

    def test_a_success_between_the_making_of_a_run_and_its_start_is_used_by_it(self, stage: Stage) -> None:
        """A start is the first claim of the job."""
        stage.part("a", mode="triggered")
        stage.part("b", every="10m", depends_on="a", queue="slow")
        stage.t.advance("10m")
        stage.t.queues.pause("slow", create=True)
        for _ in range(2):
            stage.t.schedules.trigger("a")
            stage.t.drain()
        stage.t.advance("1s")  # a success of the same microsecond as the start would count as later
        stage.t.queues.resume("slow")
        stage.t.drain()
        assert stage.ran == ["a", "a", "b"]
        stage.t.advance("10m")
        assert stage.ran == ["a", "a", "b"]
        assert stage.t.schedules.get("b").waiting_for == ("a",)

    def test_a_run_that_never_started_used_no_success(self, stage: Stage) -> None:
        stage.part("a", mode="triggered")
        stage.part("b", every="10m", depends_on="a", queue="slow")
        stage.t.queues.pause("slow", create=True)
        stage.t.advance("10m")
        stage.t.schedules.trigger("a")
        stage.t.drain()
        [job] = stage.t.schedules.get("b").waiting
        stage.t.app.jobs.get(job).cancel()
        stage.t.queues.resume("slow")
        stage.t.advance("10m")
        assert stage.ran == ["a", "b"]

    def test_a_dependency_that_was_retried_by_hand_has_succeeded(self, stage: Stage) -> None:
        stage.part("a", mode="triggered", max_failures=0)
        stage.part("b", every="10m", depends_on="a")
        stage.broken.add("a")
        stage.t.advance("0s")
        job = stage.t.schedules.trigger("a")
        stage.t.advance("10m")
        assert stage.t.schedules.get("b").waiting_for == ("a",)
        stage.broken.clear()
        job.retry()
        stage.t.drain()
        assert stage.ran == ["a", "a", "b"]
        [run] = stage.t.schedules.history("a")
        assert (run.job, run.state) == (job.id, "succeeded")
        job.retry()  # of a run that had succeeded
        stage.t.advance("10m")
        assert stage.ran[3:] == ["a", "b"]

    @pytest.mark.parametrize("by", ["put", "code"])
    def test_a_run_from_before_it_was_a_dependency_counts_when_it_is_retried_by_hand(
        self, stage: Stage, by: str
    ) -> None:
        """The night run failed; a schedule that depends on it is added; then the run is repaired."""
        stage.part("a", mode="triggered", max_failures=0)
        stage.broken.add("a")
        stage.t.advance("0s")
        jobs = [stage.t.schedules.trigger("a")]
        stage.t.drain()
        jobs.append(stage.t.schedules.trigger("a"))
        stage.t.advance("10m")
        if by == "put":
            work = stage.part("other", mode="triggered")
            stage.t.schedules.put("b", work, every="10m", depends_on="a")
        else:
            stage.part("b", every="10m", depends_on="a")
            stage.t.schedules.declare()
        stage.t.advance("10m")
        assert stage.t.schedules.get("b").waiting_for == ("a",)
        stage.broken.clear()
        jobs[0].retry()
        stage.t.drain()
        assert whats(stage.t, "b") == ["fired"]

    def test_a_backfill_whose_first_run_is_cancelled_is_a_start(self, stage: Stage) -> None:
        stage.part("a", mode="triggered")
        stage.part("b", every="10m", depends_on="a", overlap="allow", queue="slow", history=10)
        stage.t.advance("0s")
        stage.t.schedules.disable("b")
        stage.t.advance("35m")
        stage.t.schedules.enable("b")
        stage.t.queues.pause("slow", create=True)
        stage.t.schedules.trigger("a")
        stage.t.drain()
        jobs = stage.t.schedules.backfill("b", MONDAY + timedelta(minutes=5), MONDAY + timedelta(minutes=35))
        jobs[0].cancel()
        stage.t.queues.resume("slow")
        stage.t.advance("10m")
        assert (len(jobs), stage.ran) == (3, ["a", "b", "b"])
        assert stage.t.schedules.get("b").waiting_for == ("a",)

    def test_a_run_that_snoozes_has_started(self, stage: Stage) -> None:
        """Its attempt does not count, but its start does: a success during the snooze starts the next run."""
        stage.part("a", mode="triggered")
        stage.sleepy.add("b")
        stage.part("b", every="10m", depends_on="a", overlap="allow")
        stage.t.advance("0s")
        stage.t.schedules.trigger("a")
        stage.t.advance("10m")
        assert stage.ran == ["a", "b"]
        blocking("end", _succeed(stage.t, stage.t.schedules.trigger("a").id.bytes))
        stage.sleepy.clear()
        stage.t.advance("10m")
        assert stage.ran == ["a", "b", "b", "b"]
        assert whats(stage.t, "b") == ["fired", "fired"]

    def test_a_run_that_is_cancelled_while_it_snoozes_has_used_its_success(self, stage: Stage) -> None:
        stage.part("a", mode="triggered")
        stage.sleepy.add("b")
        stage.part("b", every="10m", depends_on="a")
        stage.t.advance("0s")
        stage.t.schedules.trigger("a")
        stage.t.advance("10m")
        [job] = stage.t.schedules.get("b").waiting
        stage.t.app.jobs.get(job).cancel()
        stage.t.advance("10m")
        assert stage.ran == ["a", "b"]
        assert stage.t.schedules.get("b").waiting_for == ("a",)

    def test_a_retry_of_a_dependent_run_does_not_wait(self, stage: Stage) -> None:
        stage.part("a", mode="triggered")
        stage.part("b", every="10m", depends_on="a", max_failures=0)
        stage.broken.add("b")
        stage.t.advance("10m")
        stage.t.schedules.trigger("a")
        stage.t.drain()
        [run] = stage.t.schedules.history("b")
        stage.broken.clear()
        stage.t.app.jobs.get(run.job or "").retry()
        stage.t.drain()
        assert stage.ran == ["a", "b", "b"]

    def test_a_disabled_dependency_keeps_an_occurrence_waiting(self, stage: Stage) -> None:
        stage.part("a", every="10m")
        stage.part("b", every="10m", depends_on="a")
        stage.t.advance("0s")
        stage.t.schedules.disable("a")
        stage.t.advance("30m")
        assert stage.ran == []
        assert stage.t.schedules.get("b").waiting_for == ("a",)
        stage.t.schedules.enable("a")
        stage.t.advance("10m")
        assert stage.ran == ["a", "b"]

    def test_a_schedule_that_is_disabled_drops_its_waiting_occurrence(self, stage: Stage) -> None:
        stage.part("a", mode="triggered")
        stage.part("b", every="10m", depends_on="a")
        stage.t.advance("10m")
        stage.t.schedules.disable("b")
        stage.t.drain()
        stage.t.schedules.trigger("a")
        stage.t.drain()
        assert stage.ran == ["a"]
        [run] = stage.t.schedules.history("b")
        assert (run.what, run.note) == ("skipped", "the schedule was disabled while the occurrence waited")
        stage.t.schedules.enable("b")
        stage.t.advance("10m")
        assert stage.ran == ["a", "b"], "the success came after the last start, of which there was none"

    @pytest.mark.option("schedule.expires")
    def test_a_waiting_occurrence_expires(self, stage: Stage) -> None:
        stage.part("a", mode="triggered")
        stage.part("b", at=MONDAY + timedelta(minutes=10), depends_on="a", expires="5m")
        stage.t.advance("12m")
        assert stage.t.schedules.get("b").waiting_since is not None
        stage.t.advance("10m")
        [run] = stage.t.schedules.history("b")
        assert (run.what, run.note) == ("skipped", "it expired while the schedule waited: it waits for 'a' to succeed")
        stage.t.schedules.trigger("a")
        stage.t.drain()
        assert stage.ran == ["a"]

    def test_a_continuous_schedule_waits_before_each_run(self, stage: Stage) -> None:
        stage.part("a", every="10m")
        stage.part("loop", mode="continuous", min_pause="1m", depends_on="a")
        stage.t.advance("35m")
        assert stage.ran == ["a", "loop"] * 3

    def test_a_chain_of_dependencies_runs_in_order(self, stage: Stage) -> None:
        stage.part("a", every="10m")
        stage.part("b", every="10m", depends_on="a")
        stage.part("c", every="10m", depends_on=["a", "b"])
        stage.t.advance("20m")
        assert stage.ran == ["a", "b", "c"] * 2

    @pytest.mark.parametrize("overlap", ["queue", "allow", "cancel_previous"])
    def test_one_occurrence_waits_with_every_overlap(self, stage: Stage, overlap: str) -> None:
        stage.part("a", mode="triggered")
        stage.part("b", every="10m", depends_on="a", overlap=overlap)
        stage.t.advance("30m")
        assert whats(stage.t, "b") == ["waiting", "coalesced", "coalesced"]
        stage.t.schedules.trigger("a")
        stage.t.drain()
        assert stage.ran == ["a", "b"]

    def test_a_backfill_is_one_start(self, stage: Stage) -> None:
        stage.part("a", mode="triggered")
        stage.part("b", every="10m", depends_on="a")
        stage.t.advance("40m")
        stage.t.schedules.trigger("a")
        stage.t.drain()
        assert stage.ran == ["a", "b"]
        with pytest.raises(NotTriggered, match="waits for 'a'"):
            stage.t.schedules.backfill("b", MONDAY, MONDAY + timedelta(minutes=31))
        stage.t.schedules.trigger("a")
        stage.t.drain()
        assert len(stage.t.schedules.backfill("b", MONDAY, MONDAY + timedelta(minutes=31))) == 2
        stage.t.drain()
        assert stage.ran == ["a", "b", "a", "b", "b"]

    def test_dependencies_declared_in_code_change_with_the_code(self, stage: Stage, store_url: str) -> None:
        stage.part("a", mode="triggered")
        stage.part("b", every="10m", depends_on="a")
        stage.t.advance("10m")
        assert stage.t.schedules.get("b").waiting_since is not None
        other, ran = Mainspring("sqlite://"), []
        other.schedule("a", mode="triggered")(other.task(name="parts.a")(lambda: None))
        other.schedule("b", every="10m")(other.task(name="parts.b")(lambda: ran.append("b")))
        with other.test(url=store_url, start=MONDAY + timedelta(minutes=10)) as t:
            t.drain()
            assert ran == ["b"]

    def test_a_success_from_before_a_schedule_became_a_dependency_does_not_count(self, stage: Stage) -> None:
        a = stage.part("a", mode="triggered")
        stage.t.advance("0s")
        stage.t.schedules.trigger("a")
        stage.t.drain()
        stage.t.schedules.put("b", a.s(), every="10m", depends_on="a", history=5)
        stage.t.advance("10m")
        assert stage.ran == ["a"]
        assert stage.t.schedules.get("b").waiting_for == ("a",)

    def test_dependencies_put_at_run_time(self, stage: Stage) -> None:
        a = stage.part("a", mode="triggered")
        stage.t.advance("0s")
        stage.t.schedules.put("b", a.s(), every="10m", depends_on="a", history=5)
        stage.t.advance("10m")
        assert stage.ran == []
        stage.t.schedules.put("b", a.s(), every="10m", history=5)
        stage.t.drain()
        assert stage.ran == ["a"]


@pytest.mark.row("O3")
@pytest.mark.option("schedule.blocks")
class TestBlocks:
    def test_schedules_that_block_each_other_never_run_together(self, stage: Stage) -> None:
        """Either schedule can declare it: both use one limit, which also holds for jobs of either task enqueued by
        hand.
        """
        a = stage.part("a", every="10m", blocks="b")
        b = stage.part("b", every="10m")
        stage.t.queues.pause("default")
        stage.t.advance("10m")
        stage.t.schedules.trigger("b", force=True)
        jobs = [stage.t.app.jobs.get(info.id) for info in stage.t.enqueued()] + [a.enqueue(), b.enqueue()]
        assert stage.t.app.limits.get("blocks/a+b:at-once").size == 1
        stage.t.app.limits.set("blocks/a+b:at-once", 0)
        stage.t.queues.resume("default")
        stage.t.drain()
        assert stage.ran == []
        for job in jobs:
            assert any(each.name == "blocks/a+b:at-once" for each in job.why().obstacles), job
        stage.t.app.limits.reset("blocks/a+b:at-once")
        stage.t.drain()
        assert sorted(stage.ran) == ["a", "a", "b", "b", "b"]
        assert [stage.t.schedules.get(name).blocks for name in ("a", "b")] == [("b",), ("a",)]

    def test_blocks_are_put_and_removed_at_run_time(self, stage: Stage) -> None:
        a = stage.part("a", every="10m")
        stage.t.advance("0s")
        stage.t.schedules.put("c", a.s(), every="10m", blocks=a)
        assert stage.t.schedules.get("a").blocks == ("c",)
        stage.t.queues.pause("default")
        stage.t.advance("10m")
        stage.t.app.limits.set("blocks/a+c:at-once", 0)
        stage.t.queues.resume("default")
        stage.t.drain()
        assert stage.ran == []
        stage.t.app.limits.reset("blocks/a+c:at-once")
        stage.t.drain()
        assert stage.t.schedules.declare() == ((), (), (), (), ())  # the code does not mind
        stage.t.schedules.put("c", a.s(), every="10m")
        assert stage.t.schedules.get("a").blocks == ()


@pytest.mark.row("O4")
@pytest.mark.option("schedule.group")
class TestGroups:
    def test_a_group_obeys_priority_order_and_max_concurrent(self, stage: Stage) -> None:
        """Runs due in one tick, in a group that allows one at a time, start by priority. So do triggers and jobs
        enqueued by hand.
        """
        stage.t.schedules.group("etl", max_concurrent=1)
        parts = {n: stage.part(f"p{n}", every="10m", group="etl", priority=n) for n in (3, 1, 5, 2, 4)}
        stage.t.advance("10m")
        assert stage.ran == ["p5", "p4", "p3", "p2", "p1"]
        fired = [info.schedule for info in stage.t.enqueued()]
        assert fired == stage.ran  # a worker that claims while they are fired must not find a lower one first
        stage.ran.clear()
        stage.t.queues.pause("default")
        parts[1].enqueue()
        parts[2].options(priority=10).enqueue()
        stage.t.schedules.trigger("p4")
        stage.t.schedules.trigger("p5")
        stage.t.queues.resume("default")
        stage.t.drain()
        assert stage.ran == ["p2", "p5", "p4", "p1"]
        [group] = stage.t.schedules.status().groups
        assert (group.name, group.max_concurrent, group.running) == ("etl", 1, 0)
        assert group.schedules == ("p1", "p2", "p3", "p4", "p5")

    def test_a_put_schedule_joins_a_group_that_the_store_knows(self, stage: Stage, store_url: str) -> None:
        group = stage.t.schedules.group("etl", max_concurrent=2)
        part = stage.part("one", every="10m", group=group)
        stage.t.advance("0s")
        other = Mainspring("sqlite://")
        with other.test(url=store_url, start=MONDAY) as t:
            task = t.app.task(name=part.name)(lambda: None)
            t.schedules.put("two", task, every="10m", group="etl")
        assert stage.t.schedules.status().groups[0].schedules == ("one", "two")
        stage.t.app.limits.set("group/etl:at-once", 0)
        stage.t.advance("10m")
        assert stage.ran == []
        stage.t.app.limits.reset("group/etl:at-once")
        stage.t.drain()
        assert len(stage.ran) == 2

    def test_several_schedules_of_one_task(self, stage: Stage) -> None:
        """Each schedule counts its own runs. Jobs enqueued by hand belong to no schedule."""
        stage.t.schedules.group("etl", max_concurrent=1)

        @stage.t.app.task(name="shop.load")
        async def load(table: str) -> None:
            stage.ran.append(table)

        for table in ("x", "y"):
            stage.t.app.schedule(table, every="10m", call=load.s(table), group="etl")
        stage.t.advance("0s")
        stage.t.app.limits.set("group/etl:at-once", 0)
        load.enqueue("by hand")
        stage.t.advance("10m")
        assert stage.ran == ["by hand"]
        stage.t.app.limits.reset("group/etl:at-once")
        stage.t.drain()
        assert sorted(stage.ran[1:]) == ["x", "y"]


@pytest.mark.row("O5")
class TestFailures:
    @pytest.mark.option("schedule.max_failures", "schedule.reenable_after")
    def test_the_nth_failure_in_a_row_disables_a_schedule(self, stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
        heard: list[ScheduleEvent] = []
        stage.t.app.on("schedule_disabled", "schedule_enabled")(heard.append)
        stage.part("a", every="1m", max_failures=3, reenable_after="1h")
        stage.broken.add("a")
        stage.t.advance("10m")
        assert stage.ran == ["a"] * 3
        info = stage.t.schedules.get("a")
        assert (info.enabled, info.off, info.failures) == (False, "failures", 3)
        assert (info.last_error, info.last_success) == ("ValueError: a is broken", None)
        assert info.last_failure == MONDAY + timedelta(minutes=3)
        assert info.back_at == MONDAY + timedelta(minutes=63)
        [event] = heard
        assert (event.name, event.count, event.note) == ("schedule_disabled", 3, "ValueError: a is broken")
        [warning] = [each for each in caplog.records if "disabled after" in each.getMessage()]
        assert warning.levelname == "WARNING"
        assert warning.getMessage() == "schedule 'a': disabled after 3 failed runs in a row: ValueError: a is broken"
        with pytest.raises(NotTriggered, match="3 runs failed in a row"):
            stage.t.schedules.trigger("a")

    def test_a_disabled_schedule_is_tried_again_and_one_run_decides(self, stage: Stage) -> None:
        heard: list[ScheduleEvent] = []
        stage.t.app.on("schedule_enabled")(heard.append)
        stage.part("a", every="1m", max_failures=3, reenable_after="1h")
        stage.broken.add("a")
        stage.t.advance("65m")
        assert len(stage.ran) == 4  # one on trial
        assert stage.t.schedules.get("a").back_at == MONDAY + timedelta(minutes=64 + 120)
        stage.broken.clear()
        stage.t.advance("122m")
        info = stage.t.schedules.get("a")
        assert (info.enabled, info.trial, info.failures) == (True, False, 0)
        assert [event.name for event in heard] == ["schedule_enabled"] * 2

    def test_a_trigger_after_the_pause_enables_the_schedule_and_calls_the_hook(self, stage: Stage) -> None:
        heard: list[ScheduleEvent] = []
        stage.part("a", every="1m", max_failures=1, reenable_after="1h")
        stage.broken.add("a")
        stage.t.advance("5m")
        stage.t.app.on("schedule_enabled")(heard.append)
        stage.t.clock.advance("2h")  # and no scheduler was there
        stage.t.schedules.trigger("a")
        until(lambda: [event.note for event in heard] == ["on trial"])
        assert stage.t.schedules.get("a").trial

    def test_without_reenable_after_a_schedule_is_enabled_by_hand_only(self, stage: Stage) -> None:
        stage.part("a", every="1m", max_failures=1, reenable_after=None)
        stage.part("never", every="1m", max_failures=0)
        stage.broken |= {"a", "never"}
        stage.t.advance("3h")
        assert (stage.ran.count("a"), stage.ran.count("never")) == (1, 180)
        stage.broken.clear()
        info = stage.t.schedules.enable("a")
        assert (info.enabled, info.failures) == (True, 0)
        stage.t.advance("1m")
        assert stage.ran.count("a") == 2

    @pytest.mark.row("O7")
    def test_timeouts_count_as_failures_and_are_named(self, stage: Stage) -> None:
        """The run has ended, and its text names the limit."""

        @stage.t.app.schedule("slow", every="10m", timeout="20ms", max_failures=2, reenable_after="1d")
        @stage.t.app.task(name="parts.slow", retries=0)
        async def slow() -> None:
            await asyncio.sleep(30)

        stage.t.advance("30m")
        info = stage.t.schedules.get("slow")
        assert (info.off, info.failures) == ("failures", 2)
        assert "longer than its timeout of 0.02 s" in info.last_error
        assert [run.state for run in stage.t.schedules.history("slow")] == ["dead", "dead"]


@pytest.mark.row("O6")
def test_a_trigger_obeys_every_rule(stage: Stage) -> None:
    """Blocked, grouped: the job waits. Disabled, overlapping, dependent: ``trigger`` returns the reason."""
    stage.t.schedules.group("g", max_concurrent=1)
    stage.part("a", mode="triggered", blocks="b", group="g")
    stage.part("b", mode="triggered", group="g", depends_on="a")
    stage.t.advance("0s")
    with pytest.raises(NotTriggered, match="waits for 'a' to succeed"):
        stage.t.schedules.trigger("b")
    job = stage.t.schedules.trigger("a")
    stage.t.app.limits.set("group/g:at-once", 0)
    stage.t.drain()
    assert any(each.name == "group/g:at-once" for each in job.why().obstacles)
    stage.t.app.limits.reset("group/g:at-once")
    stage.t.drain()
    stage.t.schedules.trigger("b")
    stage.t.drain()
    assert stage.ran == ["a", "b"]
    stage.t.schedules.disable("a")
    with pytest.raises(NotTriggered, match="disabled"):
        stage.t.schedules.trigger("a")


@pytest.mark.row("O7")
def test_a_run_ended_by_its_timeout_does_not_overlap_with_the_next_run(app: Mainspring) -> None:
    spans: list[tuple[float, float]] = []

    @app.schedule("slow", every="50ms", timeout="100ms", max_failures=0, overlap="queue", history=1_000)
    @app.task(name="parts.slow", retries=0)
    async def slow() -> None:
        began = time.monotonic()
        try:
            await asyncio.sleep(60)
        finally:
            spans.append((began, time.monotonic()))

    with app.worker():
        until(lambda: len(spans) >= 4)
        app.schedules.disable("slow")
    assert all(ended <= began for (_, ended), (began, _) in itertools.pairwise(spans))
    errors = [run.error for run in app.schedules.history("slow", 1_000) if run.error]
    assert errors
    assert all("longer than its timeout" in error for error in errors)


@pytest.mark.row("O8")
def test_status_of_all_schedules(stage: Stage) -> None:
    stage.t.schedules.group("g", max_concurrent=2)
    stage.part("good", every="10m", group="g")
    stage.part("bad", every="10m", max_failures=2)
    stage.part("waits", every="10m", depends_on="bad")
    stage.broken.add("bad")
    stage.t.advance("20m")
    stage.t.queues.pause("default")
    held = stage.t.schedules.trigger("good")
    status = stage.t.schedules.status()
    assert [info.name for info in status.schedules] == ["bad", "good", "waits"]
    good, bad, waits = status["good"], status["bad"], status["waits"]
    assert (good.enabled, good.failures, good.last_success) == (True, 0, MONDAY + timedelta(minutes=20))
    assert (good.waiting, good.running, good.next) == ((held.id,), (), MONDAY + timedelta(minutes=30))
    assert (bad.enabled, bad.failures, bad.next) == (False, 2, None)
    assert (bad.last_error, bad.last_failure) == ("ValueError: bad is broken", MONDAY + timedelta(minutes=20))
    assert bad.last is not None
    assert bad.last.outcome == "dead"
    assert (waits.waiting_for, waits.last, waits.waiting) == (("bad",), None, ())
    assert waits.waiting_since == MONDAY + timedelta(minutes=10)
    assert [(group.name, group.running) for group in status.groups] == [("g", 0)]
    assert status.at == stage.t.clock.now()


@pytest.mark.row("O9")
class TestStartAndStop:
    def test_start_and_stop_can_be_called_twice(self, app: Mainspring) -> None:
        ran: list[int] = []

        @app.schedule("often", every="50ms", overlap="queue")
        @app.task(name="parts.often")
        def often() -> None:
            ran.append(1)

        worker = app.worker()
        worker.start()
        worker.start()
        until(lambda: len(ran) >= 2)
        worker.stop()
        worker.stop()
        assert worker.exit_code == 0
        assert not app.schedules.get("often").running

    def test_stop_waits_for_running_jobs(self, app: Mainspring) -> None:
        began, told = threading.Event(), threading.Event()

        @app.schedule("slow", mode="triggered")
        @app.task(name="parts.slow")
        def slow() -> str:
            began.set()
            assert told.wait(LIMIT)
            time.sleep(0.3)
            return "done"

        worker = app.worker(drain="60s")
        worker.start()
        job = app.schedules.trigger("slow")
        assert began.wait(LIMIT)
        told.set()
        worker.stop()
        assert (worker.exit_code, job.info().state) == (0, State.SUCCEEDED)
        assert len(job.info().attempts) == 0, "it was not run twice"

    def test_stop_hands_back_running_jobs_after_its_limit_and_returns_them(self, app: Mainspring) -> None:
        """The handed-back job runs again as the same run when a worker starts."""
        began, slow = threading.Event(), [True]

        @app.schedule("slow", mode="triggered")
        @app.task(name="parts.slow")
        async def work() -> str:
            began.set()
            await asyncio.sleep(60 if slow.pop() else 0)
            return "done"

        slow.insert(0, False)
        worker = app.worker(drain="100ms")
        worker.start()
        job = app.schedules.trigger("slow")
        assert began.wait(LIMIT)
        worker.stop()
        assert worker.exit_code == 3
        assert job.info().state is State.READY
        with app.worker():
            assert job.result(timeout=LIMIT) == "done"
            until(lambda: app.schedules.get("slow").last)
        assert [run.job for run in app.schedules.history("slow")] == [job.id]


def _is_over(worker: EmbeddedWorker) -> bool:
    return worker.exit_code is not None


@pytest.mark.row("S3", "O8")
def test_an_occurrence_runs_once_in_a_fleet(app: Mainspring, store_url: str) -> None:
    """Three programs with the same code find the same occurrence due: one run at the moment, one run after a delay."""
    ran: list[str] = []
    at = datetime.now(UTC) + timedelta(seconds=3)
    fleet = [app, *(Mainspring(store_url, **short_settings()) for _ in range(2))]
    for each in fleet:
        each.schedule("at", at=at)(each.task(name="parts.at")(lambda: ran.append("at")))
        each.schedule("after", after="1s")(each.task(name="parts.after")(lambda: ran.append("after")))
    assert app.schedules.declare().added == ("after", "at")  # a moment that is over when it is stored is not run
    with ExitStack() as stack:
        for each in fleet:
            stack.enter_context(each.worker())
        until(lambda: all(app.schedules.get(name).last for name in ("at", "after")))
        until(lambda: {info.next for info in app.schedules.list()} == {None})
    assert sorted(ran) == ["after", "at"]
    assert app.jobs.count().total == 2
    for each in fleet[1:]:
        each.close()


@pytest.mark.row("S3")
def test_a_worker_until_empty_fires_due_schedules(app: Mainspring) -> None:
    ran: list[int] = []
    app.schedule("once", after="0s")(app.task(name="parts.once")(lambda: ran.append(1)))
    for _ in range(2):
        with app.worker(until_empty=True) as worker:
            until(partial(_is_over, worker))
    assert ran == [1]


@pytest.mark.row("O5")
def test_hooks_of_a_worker_get_schedule_events(app: Mainspring) -> None:
    heard: list[ScheduleEvent] = []
    app.on("schedule_disabled")(heard.append)

    @app.schedule("bad", every="20ms", max_failures=2, reenable_after=None)
    @app.task(name="parts.bad", retries=0)
    def bad() -> None:
        raise ValueError("no")

    with app.worker():
        until(lambda: heard)
    [event] = heard
    assert (event.schedule, event.count, event.note) == ("bad", 2, "ValueError: no")
    assert event.worker
