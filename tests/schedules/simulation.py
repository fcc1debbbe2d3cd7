"""Schedulers, workers and operators in one thread, on a real SQLite store, in simulated time, one store call at a time.

The simulation decides by its seed who makes the next call, whether its request or its reply is lost, who dies, and what
the clock does. Nothing waits: hours pass between two calls. What is exchanged is told to the judge.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from mainspring.common.clock import MovableClock, to_datetime
from mainspring.common.ids import raw_id
from mainspring.errors import QueueDraining, StoreUnavailable
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch
from mainspring.queues.records import QueueMode
from mainspring.schedules.plan import (
    Definition,
    SchedulePlan,
    ScheduleStep,
    backfill,
    decode,
    disable,
    enable,
    new_plan,
    revise,
    trigger,
)
from mainspring.schedules.plan.steps import next_look
from mainspring.schedules.records import ScheduleRow, ScheduleSwap, SwapResult
from mainspring.schedules.swap import find_runs, swap_row
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.stores.connect import connect
from mainspring.testing.contract.hands import Hand, lease
from mainspring.worker.records import Claim
from tests.schedules.actors import Actor, ByHand, Fate
from tests.schedules.judge import Judge
from tests.unit.schedule_samples import HOUR, JOB, MINUTE, SECOND, T0

ERROR = b'{"type":"ValueError","message":"no"}'


class Simulation:
    """``run`` simulates this many hours."""

    def __init__(self, folder: Path, seed: int, definitions: dict[str, Definition], schedulers: int = 4) -> None:
        self.draw = random.Random(seed)
        random.seed(seed)  # by which schedulers shuffle
        self.clock = MovableClock(to_datetime(T0))
        self.idle = asyncio.Event()
        self.judge = Judge(definitions, self.own_time)
        self.counts = Counter[str]()
        self.steady = False
        """No faults any more, and nobody changes anything."""
        self._url = f"sqlite:///{folder / 'simulation.db'}"
        self.store: Store = connect(self._url, durability="normal", clock=self.clock)
        self._definitions = definitions
        self._actors = [Actor(self) for _ in range(schedulers)]
        self._own = 0.0
        self._draining = 0
        self._ends: dict[bytes, tuple[int, Claim]] = {}
        self._moods = dict.fromkeys(definitions, 0.1)
        self._hand = Hand(self.store, tasks=[JOB.task])

    def own_time(self) -> float:
        """What the machine counts, whatever its clock shows."""
        return self._own

    async def run(self, hours: float) -> None:
        await self.store.open()
        await self._hand.join()
        for name, definition in self._definitions.items():
            plan = new_plan(definition, self.clock.now_us())
            row = ScheduleRow(name=name, rev=0, look=None, doc=b"")
            assert await self._store_step(row, ScheduleStep(plan, next_look(plan, self.clock.now_us())), "operator")
        until = self._own + hours * 3600
        while self._own < until:
            await self._pass_time()
            await self._work()
            for _ in range(self.draw.randint(1, 24)):
                await self._let(self.draw.choice(self._actors))
            if self.draw.random() < 0.15:
                await self._operate()
            self._draining -= 1
            if self._draining == 0:
                await self.store.set_queue_mode(["q"], QueueMode.OPEN)
        await self._come_to_rest()
        await self.store.close()

    # ---- time -------------------------------------------------------------------------------------

    async def _pass_time(self) -> None:
        kind = self.draw.random()
        if kind < 0.01:
            await self._go_back(self.draw.choice([SECOND, MINUTE, HOUR, 5 * HOUR]))
        elif kind < 0.02:
            self._forth(self.draw.randint(HOUR, 12 * HOUR))  # nobody was there
        elif kind < 0.7:
            looked = await self.store.due_schedules(1)
            ahead = MINUTE if looked.next_look is None else looked.next_look - looked.now
            self._forth(max(0, min(ahead, HOUR)) + self.draw.choice([0, 0, 1, SECOND]))
        else:
            self._forth(self.draw.randint(0, 20 * MINUTE))
        await self.store.promote()

    def _forth(self, us: int) -> None:
        self.clock.advance(us / 1e6)
        self._own += us / 1e6

    async def _go_back(self, us: int) -> None:
        """Set the clock of the machine back. The store's clock follows if everything is restarted, otherwise it
        does not advance.
        """
        self.counts["went back"] += 1
        self.clock.set(self.clock.now() - timedelta(microseconds=us))
        if self.draw.random() < 0.7:
            await self.store.close()
            self.store = self._hand.store = connect(self._url, durability="normal", clock=self.clock)
            await self.store.open()

    # ---- schedulers -------------------------------------------------------------------------------

    async def _let(self, actor: Actor) -> None:
        """The next call of one scheduler, or its death."""
        fate = self._fate()
        self.idle.clear()
        if actor.task is None:
            actor.start(self.idle)
        elif self.draw.random() < 0.003 and not self.steady:
            self.counts["died"] += 1
            actor.task.cancel()
            await asyncio.wait({actor.task})
            self._actors[self._actors.index(actor)] = Actor(self)
            return
        else:
            assert actor.wire.gate is not None
            self.counts[fate] += 1
            actor.wire.gate.set_result(fate)
        await self.idle.wait()
        if actor.task is not None and actor.task.done():
            error = actor.task.exception()
            actor.task = None
            if error is not None and not isinstance(error, StoreUnavailable):
                raise error

    def _fate(self) -> Fate:
        if self.steady:
            return "done"
        return self.draw.choices(("done", "lost", "unheard"), (0.96, 0.02, 0.02))[0]

    # ---- workers ----------------------------------------------------------------------------------

    async def _work(self) -> None:
        """End what has run for long enough, and take what is there."""
        await self._obey()
        now = self.clock.now_us()
        over = [claim for end, claim in self._ends.values() if end <= now]
        acks, names = [], set()
        for claim in over:
            name = self.judge.owner(claim.id)
            names.add(name)
            del self._ends[claim.id]
            good = self.draw.random() >= self._moods[name]
            acks.append(
                Ack.succeeded(lease(claim), b"1") if good else Ack.dead(lease(claim), ERROR, Reason.NOT_RETRYABLE)
            )
            self.judge.ended(claim.id, State.SUCCEEDED if good else State.DEAD)
        if acks:
            await self._hand.turn(*acks)
        for claim in await self._hand.take(50):
            self.judge.started(claim.id)
            lasts = self.draw.choice([SECOND, MINUTE, 10 * MINUTE, 50 * MINUTE, 3 * HOUR])
            self._ends[claim.id] = self.clock.now_us() + self.draw.randint(1, lasts), claim
        if over and self.draw.random() < 0.02 and not self.steady:
            gone = self.draw.choice(over).id
            await self.store.act(Action.DELETE, Query(ids=(gone,)))
            self.judge.deleted(gone)
        if names and self.draw.random() < 0.5:
            self.draw.choice(self._actors).scheduler.on_runs_ended(names)

    async def _obey(self) -> None:
        """End what is to be cancelled."""
        for order in (await self._hand.turn()).orders:
            _, claim = self._ends.pop(order.id)
            await self._hand.turn(Ack.succeeded(lease(claim), b"1"))
            self.judge.ended(claim.id, State.CANCELLED)

    async def cancel(self, jobs: Sequence[bytes]) -> None:
        """Waiting jobs end at once, running jobs get a cancel order."""
        await self.store.act(Action.CANCEL, Query(ids=tuple(jobs)))
        for job in jobs:
            if job not in self._ends:
                self.judge.ended(job, State.CANCELLED)

    # ---- operators --------------------------------------------------------------------------------

    async def _operate(self) -> None:
        name = self.draw.choice(list(self._definitions))
        what = self.draw.choice([
            "trigger", "trigger", "trigger", "force", "backfill", "disable", "enable", "enable", "declare", "revise",
            "mood", "mood", "cancel", "queue",
        ])  # fmt: skip
        self.counts[what] += 1
        if what == "mood":
            self._moods[name] = self.draw.choice([0.0, 0.0, 0.1, 0.9, 1.0])
        elif what == "cancel":
            if live := self.judge.live(name):
                await self.cancel(live)
        elif what == "queue":
            self._draining = 20
            await self.store.set_queue_mode(["q"], QueueMode.DRAINING)
        else:
            await self._change(name, what)

    async def _change(self, name: str, what: str) -> None:
        (row,) = await self.store.schedules([name])
        plan, now = decode(row.doc), (await self.store.due_schedules(1)).now
        made: Any = None
        if what in ("trigger", "force"):
            seen = await find_runs(self.store, [run.job for run in plan.open])
            made = trigger(name, plan, now, seen, raw_id, force=what == "force")
        elif what == "backfill" and plan.rule is not None:
            past = [at for at in self.judge.passed(name)[-20:] if not self.judge.has_job(name, at)]
            made = backfill(name, plan, now, self.draw.sample(past, min(len(past), 3)), raw_id)
        elif what in ("disable", "enable"):
            after = disable(plan, now, "tired") if what == "disable" else enable(plan, now)
            made = ScheduleStep(after, next_look(after, now))
        elif what in ("declare", "revise"):
            definition = self._definitions[name] if what == "declare" else self._another(plan)
            after = revise(plan, definition, now, owner="user")
            made = ScheduleStep(after, next_look(after, now))
        if isinstance(made, ScheduleStep):
            await self._store_step(row, made, what)

    def _another(self, plan: SchedulePlan) -> Definition:
        """Other numbers, and perhaps another interval."""
        definition = replace(plan.definition, max_failures=self.draw.randint(0, 4))
        other = self._definitions[self.draw.choice(list(self._definitions))]
        if definition.mode == other.mode == "scheduled" and self.draw.random() < 0.5:
            definition = replace(definition, rule=other.rule)
        return definition

    async def _store_step(self, row: ScheduleRow, made: ScheduleStep, what: str) -> bool:
        by_hand = ByHand(self, what)
        try:
            said = await swap_row(cast("Store", by_hand), row, made)
        except QueueDraining:
            return False
        if said.ok and made.cancel:
            await self.cancel(made.cancel)
        return said.ok

    async def swap_schedule(self, asked: ScheduleSwap, batch: JobBatch | None, by: str) -> SwapResult:
        said = await self.store.swap_schedule(asked, batch)
        if said.ok:
            self.judge.exchanged(asked, batch, said.now, by)
        return said

    # ---- the end ----------------------------------------------------------------------------------

    async def _come_to_rest(self) -> None:
        """Nothing fires any more, what runs ends, and all of it is taken in."""
        self.steady = True
        await self.store.set_queue_mode(["q"], QueueMode.OPEN)
        for name in self._definitions:
            await self._change_until_done(name)
        for _ in range(400):
            self._forth(15 * MINUTE)
            await self.store.promote()
            await self._work()
            for actor in list(self._actors):
                await self._let(actor)
                while actor.task is not None:
                    await self._let(actor)
            if not self._ends and not any(decode(row.doc).open for row in await self.store.schedules()):
                break
        await self.judge.rest(self.store)

    async def _change_until_done(self, name: str) -> None:
        (row,) = await self.store.schedules([name])
        off = disable(decode(row.doc), self.clock.now_us(), "the end")
        assert await self._store_step(row, ScheduleStep(off, next_look(off, self.clock.now_us())), "disable")
