"""``depends_on`` on a real store: each success starts a dependent schedule once, whichever process dies in between."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from mainspring.common.clock import MovableClock
from mainspring.common.ids import raw_id
from mainspring.errors import StoreUnavailable
from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch, UniqueKey
from mainspring.schedules.manual_runs import take_in_dependencies
from mainspring.schedules.plan import ScheduleStep, trigger
from mainspring.schedules.records import ScheduleSwap, SwapResult
from mainspring.schedules.service import Scheduler
from mainspring.schedules.swap import find_runs, jobs_to_find, swap_row, unseen_starts
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import Hand, lease, put_in
from mainspring.worker.records import Claim
from tests.schedules.scheduled import Counting, plan_of, put, what
from tests.unit.schedule_samples import JOB

pytestmark = pytest.mark.row("O2")

ERROR = b'{"type":"ValueError","message":"no"}'


class Died(BaseException):
    """The process of a scheduler was killed."""


class Mortal:
    """A store as a process reaches it that dies before or after its ``last`` call."""

    def __init__(self, store: Store, last: int, *, after: bool) -> None:
        self._store, self._last, self._after = store, last, after
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        async def mortal(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self._last and not self._after:
                raise Died
            said = await call(*args, **options)
            if self.calls == self._last:
                raise Died
            return said

        return mortal


class MortalMaker:
    """A store as a process reaches it that dies when it has made a job."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def swap_schedule(self, swap: ScheduleSwap, batch: JobBatch | None = None) -> SwapResult:
        said = await self._store.swap_schedule(swap, batch)
        if batch is not None:
            raise Died
        return said


async def triggered(store: Store, name: str, *, force: bool = False) -> bytes | None:
    """The job of a trigger; None if it is refused or another process was faster."""
    (row,) = await store.schedules([name])
    plan = await plan_of(store, name)
    seen = await find_runs(store, jobs_to_find(plan, ended=False), unseen_starts(plan))
    successes = await take_in_dependencies(store, plan, lambda name, change: None)
    made = trigger(name, plan, await store.now(), seen, raw_id, successes, force=force)
    if not isinstance(made, ScheduleStep) or not (await swap_row(store, row, made)).ok:
        return None
    return made.jobs[0].id


async def run_all(hand: Hand) -> list[bytes]:
    """Every ready job runs and succeeds; the scheduler gets no message."""
    claims = await hand.take(50)
    if claims:
        await hand.succeed(*claims)
    return [claim.id for claim in claims]


async def prepared(store: Store, clock: MovableClock) -> Hand:
    """``a`` has a run that has just succeeded, ``d`` waits for it, and no scheduler knows."""
    await put(store, "a", mode="triggered")
    await put(store, "d", depends_on=("a",))
    hand = await Hand(store, tasks=[JOB.task]).join()
    clock.advance("1m")
    await Scheduler(store).tick()
    assert (await plan_of(store, "d")).waiting is not None
    assert await triggered(store, "a") is not None
    assert len(await run_all(hand)) == 1
    return hand


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("call", range(1, 12))
async def test_a_success_starts_one_run_if_a_scheduler_dies_at_any_call(
    store: Store, clock: MovableClock, call: int, after: bool
) -> None:
    """Also if it dies between the ack and the record of the success, before and after each swap."""
    hand = await prepared(store, clock)
    victim = Scheduler(cast("Store", Mortal(store, call, after=after)))
    for _ in range(2):
        try:
            await victim.tick()
        except Died:
            break
    survivor = Scheduler(store)
    while await survivor.tick() == 0:
        pass
    plan = await plan_of(store, "d")
    assert (len(plan.open), plan.waiting, await what(store, "d")) == (1, None, ["fired"])
    assert len(await run_all(hand)) == 1
    clock.advance("1m")
    for scheduler in (survivor, Scheduler(store)):
        await scheduler.tick()
    assert await what(store, "d") == ["fired", "waiting"]
    assert await run_all(hand) == []


async def test_two_schedulers_start_one_run(store: Store, clock: MovableClock) -> None:
    hand = await prepared(store, clock)
    crew = [Scheduler(store) for _ in range(4)]
    await asyncio.gather(*(scheduler.tick() for scheduler in crew))
    await asyncio.gather(*(scheduler.tick() for scheduler in crew))
    assert len(await run_all(hand)) == 1
    assert await what(store, "d") == ["fired"]


class Succession:
    """``d`` depends on ``a``. Their runs are in queues of their own, so each is claimed when the test says so."""

    def __init__(self, store: Store, clock: MovableClock) -> None:
        self.store, self.clock = store, clock
        self.scheduler = Scheduler(store)
        self.hand = Hand(store, tasks=[JOB.task])

    async def begin(self, **options: Any) -> None:
        """``d`` has a run that was made with the first success of ``a`` and has not started."""
        await put(self.store, "a", mode="triggered", job=replace(JOB, queue="qa"))
        await put(self.store, "d", depends_on=("a",), **options)
        await self.hand.join()
        await self.succeed("a", "qa")
        await self.next_minute()
        assert len((await plan_of(self.store, "d")).open) == 1

    async def succeed(self, name: str, queue: str) -> None:
        """A triggered run of this schedule succeeds, and no scheduler knows."""
        assert await triggered(self.store, name) is not None
        await self.hand.succeed(await self.claim(queue))
        self.clock.advance("1ms")

    async def claim(self, queue: str = "q") -> Claim:
        self.clock.advance("1ms")
        claim = await self.hand.take_one(f"{queue}/any")
        self.clock.advance("1ms")
        return claim

    async def next_minute(self) -> None:
        """The next occurrence of ``d`` is due."""
        self.clock.advance("1m")
        for _ in range(2):
            await self.scheduler.tick()


@pytest.fixture
def succession(store: Store, clock: MovableClock) -> Succession:
    return Succession(store, clock)


class TestTheFirstClaimIsTheStart:
    """No scheduler looks while the run starts, is given back and starts again."""

    async def test_a_success_before_the_loss_of_the_worker_starts_the_next_run(self, succession: Succession) -> None:
        await succession.begin()
        lost = await Hand(succession.store, tasks=[JOB.task]).join()
        await lost.take_one()
        await succession.succeed("a", "qa")
        await lost.crash()
        await succession.hand.succeed(await succession.claim())
        await succession.next_minute()
        assert await what(succession.store, "d") == ["fired", "fired"]

    async def test_a_run_that_is_cancelled_after_the_loss_of_its_worker_has_used_its_success(
        self, succession: Succession
    ) -> None:
        await succession.begin()
        lost = await Hand(succession.store, tasks=[JOB.task]).join()
        claim = await lost.take_one()
        assert (await succession.store.rescue(lost.name, lost.beats, Outcome.LOST)).taken
        await succession.store.act(Action.CANCEL, Query(ids=(claim.id,)), limit=1)
        await succession.next_minute()
        assert await what(succession.store, "d") == ["fired", "waiting"]

    async def test_a_run_that_was_handed_back_unstarted_has_not_started(self, succession: Succession) -> None:
        """Its worker had claimed it ahead of a free slot."""
        await succession.begin()
        claim = await succession.claim()
        await succession.hand.turn(Ack.returned(lease(claim)))
        await succession.store.act(Action.CANCEL, Query(ids=(claim.id,)), limit=1)
        await succession.next_minute()
        assert await what(succession.store, "d") == ["fired", "fired"]

    async def test_a_success_before_a_failed_attempt_starts_no_run(self, succession: Succession) -> None:
        await succession.begin()
        await succession.succeed("a", "qa")
        await succession.hand.turn(Ack.failed(lease(await succession.claim()), ERROR, retry_in=0))
        await succession.store.promote()
        await succession.hand.succeed(await succession.claim())
        await succession.next_minute()
        assert await what(succession.store, "d") == ["fired", "waiting"]


@pytest.mark.parametrize(("first", "second"), [("b", "c"), ("c", "b")])
async def test_a_start_uses_the_successes_before_it_if_another_schedule_depends_on_both(
    succession: Succession, first: str, second: str
) -> None:
    """One look takes in both dependencies of ``d``, of which the second one depends on the first one."""
    store, clock = succession.store, succession.clock
    await put(store, first, mode="triggered", job=replace(JOB, queue="qa"))
    await put(store, second, depends_on=(first,), overlap="allow")
    await succession.hand.join()
    await succession.succeed(first, "qa")
    await succession.next_minute()
    await succession.succeed(first, "qa")
    await succession.claim()
    await put(store, "d", depends_on=(first, second), at=clock.now_us())
    await Scheduler(store).tick()
    assert await what(store, "d") == ["waiting"]
    await succession.next_minute()
    assert await what(store, second) == ["fired", "waiting"]


async def test_a_trigger_that_takes_in_a_start_knows_the_successes_before_it(succession: Succession) -> None:
    """``f`` depends on ``d``. No scheduler has seen the second success of ``a`` and the start of ``d`` after it."""
    store = succession.store
    await put(store, "f", mode="triggered", depends_on=("d",))
    await succession.begin(overlap="allow")
    await succession.succeed("a", "qa")
    await succession.claim()
    assert await triggered(store, "f") is None, "d has not succeeded"
    assert (await plan_of(store, "d")).starts == ()
    await succession.next_minute()
    assert await what(store, "d") == ["fired", "waiting"]


async def test_a_run_that_was_never_made_gives_its_success_back(succession: Succession) -> None:
    """Another job holds its unique key, and the scheduler dies before it has corrected the row."""
    store = succession.store
    job = replace(JOB, unique=UniqueKey(b"k" * 16))
    await put(store, "a", mode="triggered", job=replace(JOB, queue="qa"))
    await put(store, "d", depends_on=("a",), job=job)
    await succession.hand.join()
    await succession.succeed("a", "qa")
    await put_in(store, replace(job, id=raw_id()))
    succession.clock.advance("1m")
    with pytest.raises(Died):
        await Scheduler(cast("Store", MortalMaker(store))).tick()
    assert len((await plan_of(store, "d")).open) == 1
    await succession.hand.succeed(await succession.claim())
    await succession.next_minute()
    assert await what(store, "d") == ["fired", "fired"]


async def test_a_look_at_a_waiting_schedule_writes_nothing(store: Store, clock: MovableClock) -> None:
    """Its row is due in each tick, so every scheduler sees a success within a second, and does not wait for a look."""
    await put(store, "a", mode="triggered")
    await put(store, "d", depends_on=("a",))
    clock.advance("1m")
    first, other = Scheduler(store), Scheduler(store)
    await first.tick()
    before = await store.schedules()
    calls: list[str] = []
    other.store = cast("Store", Counting(store, calls))
    for _ in range(3):
        clock.advance("1s")
        calls.clear()
        assert await other.tick() > 0
    assert Counter(calls) == {"due_schedules": 1, "schedules": 1}
    assert await store.schedules() == before


async def test_waiting_schedules_do_not_keep_others_from_being_due(store: Store, clock: MovableClock) -> None:
    await put(store, "a", mode="triggered")
    for n in range(250):
        await put(store, f"d{n:03}", depends_on=("a",))
    clock.advance("1m")
    scheduler = Scheduler(store)
    while await scheduler.tick() == 0:
        pass
    await put(store, "z")
    clock.advance("1m")
    ticks = 0
    while await scheduler.tick() == 0:
        ticks += 1
        assert ticks < 20
    assert (await what(store, "z"))[-1] == "fired"


class Truth:
    """What has happened, in its order: the successes of each schedule, and its starts."""

    def __init__(self, depends_on: dict[str, tuple[str, ...]]) -> None:
        self._depends_on = depends_on
        self._now = 0
        self._succeeded: dict[str, int] = defaultdict(int)
        self._started: dict[str, int] = defaultdict(int)
        self.starts = Counter[str]()

    def unmet(self, name: str) -> list[str]:
        """The dependencies without a success since the last start."""
        return [each for each in self._depends_on[name] if self._succeeded[each] <= self._started[name]]

    def start(self, name: str) -> None:
        assert self.unmet(name) == [], f"{name} was started, and has to wait for {self.unmet(name)}"
        self._now += 1
        self._started[name] = self._now
        self.starts[name] += 1

    def succeed(self, name: str) -> None:
        self._now += 1
        self._succeeded[name] = self._now


class Trouble:
    """A store whose calls fail, before or after the store has answered, and kill their process."""

    def __init__(self, store: Store, draw: random.Random) -> None:
        self._store, self._draw = store, draw
        self.over = False

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        async def troubled(*args: Any, **options: Any) -> Any:
            fate = 1.0 if self.over else self._draw.random()
            await asyncio.sleep(0)
            if fate < 0.04:
                raise StoreUnavailable("the request was lost") if fate < 0.02 else Died
            said = await call(*args, **options)
            if fate < 0.08:
                raise StoreUnavailable("the reply was lost") if fate < 0.06 else Died
            return said

        return troubled


class Crew:
    """Three schedulers that die and are replaced."""

    def __init__(self, store: Store, draw: random.Random) -> None:
        self._draw = draw
        self.wire = Trouble(store, draw)
        self.schedulers = [self._new() for _ in range(3)]

    def _new(self) -> Scheduler:
        return Scheduler(cast("Store", self.wire))

    async def tick(self) -> None:
        """All of them at once."""
        await asyncio.gather(*(self._tick(n) for n in range(len(self.schedulers))))

    async def _tick(self, n: int) -> None:
        try:
            for _ in range(self._draw.randint(1, 3)):
                await self.schedulers[n].tick()
        except StoreUnavailable:
            pass
        except Died:
            self.schedulers[n] = self._new()


class Work:
    """The worker of the runs: it starts, ends and cancels them, each at a moment of its own, and tells the truth."""

    def __init__(self, store: Store, clock: MovableClock, truth: Truth, draw: random.Random) -> None:
        self._store, self._clock, self._truth, self._draw = store, clock, truth, draw
        self._hand = Hand(store, tasks=[JOB.task])
        self._running: dict[bytes, tuple[str, Any]] = {}
        self._owners: dict[bytes, str] = {}
        self._started = set[bytes]()

    async def join(self) -> None:
        await self._hand.join()

    async def step(self, names: Sequence[str], *, quiet: bool = False) -> set[str]:
        """Start what is ready and end some of what runs. Returns the schedules whose runs have ended."""
        await self._learn(names)
        await self._store.promote()
        if not quiet and self._draw.random() < 0.05:
            await self._store.act(Action.CANCEL, Query.where(states=[State.READY]), limit=1)
        self._clock.advance(0.001)
        for claim in await self._hand.take(self._draw.randint(1, 5)):
            if claim.id not in self._started:
                self._truth.start(self._owners[claim.id])
            self._started.add(claim.id)
            self._running[claim.id] = self._owners[claim.id], claim
        ended = set()
        for id, (name, claim) in list(self._running.items()):
            if not quiet and self._draw.random() < 0.1:
                await self._hand.turn(self._draw_return(lease(claim)))
                del self._running[id]
            elif quiet or self._draw.random() < 0.6:
                good = self._draw.random() < 0.8
                self._clock.advance(0.001)
                ack = Ack.succeeded(lease(claim), b"1")
                await self._hand.turn(ack if good else Ack.dead(lease(claim), ERROR, Reason.NOT_RETRYABLE))
                del self._running[id]
                ended.add(name)
                if good:
                    self._truth.succeed(name)
        return ended

    def _draw_return(self, held: Lease) -> Ack:
        """The job is ready again later. That is no second start of its schedule."""
        return self._draw.choice([
            Ack.snoozed(held, delay=1_000_000), Ack.failed(held, ERROR, retry_in=1_000_000),
            Ack.interrupted(held, run_us=1_000),
        ])  # fmt: skip

    async def _learn(self, names: Sequence[str]) -> None:
        for name in names:
            self._owners |= {run.job: name for run in await self._store.schedule_runs(name, 100) if run.job}


@pytest.mark.timeout(600)  # hundreds of rounds of real store calls
@pytest.mark.parametrize("seed", range(1, 7))
async def test_a_hundred_rounds_of_trouble_break_no_dependency(store: Store, clock: MovableClock, seed: int) -> None:
    """Every start of a schedule has a success of each dependency since the start before, and none is forgotten."""
    draw = random.Random(seed)
    random.seed(seed)
    depends_on: dict[str, tuple[str, ...]] = {
        "a": (), "b": (), "d": ("a",), "e": ("a", "b", "g"), "f": ("d",), "g": ("a",),
    }  # fmt: skip
    names = list(depends_on)
    truth = Truth(depends_on)
    for name, how in {
        "a": {"mode": "triggered"}, "b": {}, "d": {}, "e": {"overlap": "queue", "misfire": "all"},
        "f": {"mode": "continuous"}, "g": {"overlap": "allow"},
    }.items():  # fmt: skip
        options: dict[str, Any] = {"max_failures": 0, "depends_on": depends_on[name], **how}
        await put(store, name, **options)
    crew = Crew(store, draw)
    work = Work(store, clock, truth, draw)
    await work.join()
    for _ in range(100):
        clock.advance(draw.choice([0.0, 0.001, 1.0, 20.0, 60.0]))
        await crew.tick()
        if draw.random() < 0.8:
            await triggered(store, draw.choice(["a", "a", "g", *names]))
        told = await work.step(names)
        if told and draw.random() < 0.5:  # otherwise the worker dies after the ack
            draw.choice(crew.schedulers).on_runs_ended(told)
    crew.wire.over = True
    for _ in range(30):
        clock.advance(0.001)
        await crew.tick()
        await work.step(names, quiet=True)
    for name in names:
        plan = await plan_of(store, name)
        assert plan.waiting is None or truth.unmet(name), f"{name} waits, and nothing is missing"
    assert min(truth.starts[name] for name in names) > 2, truth.starts
    assert sum(truth.starts.values()) > 50, truth.starts
