"""The checker of histories: a good run passes; of each invariant several bad ones are caught, by that very one."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mainspring import Context, Mainspring, group
from mainspring.errors import JobDead
from mainspring.states import Action, State
from mainspring.testing.history import INVARIANTS, ClientCall, History, check, read, recoveries
from tests.unit import histories
from tests.unit.flow_histories import FLOW_BAD, FLOW_GOOD
from tests.unit.graph_histories import GRAPHS_BAD, GRAPHS_GOOD
from tests.unit.lock_histories import LOCKS_BAD, LOCKS_GOOD
from tests.unit.tick_histories import TICKS_BAD, TICKS_GOOD

GOOD = histories.GOOD | FLOW_GOOD | TICKS_GOOD | LOCKS_GOOD | GRAPHS_GOOD
BAD = histories.BAD | FLOW_BAD | TICKS_BAD | LOCKS_BAD | GRAPHS_BAD

CASES = [pytest.param(name, history, id=f"{name}-{n}") for name, bad in BAD.items() for n, history in enumerate(bad)]


@pytest.mark.parametrize("history", GOOD.values(), ids=list(GOOD))
def test_a_good_history_passes(history: History) -> None:
    assert check(history) == []


@pytest.mark.parametrize(("name", "history"), CASES)
def test_a_bad_history_is_caught(name: str, history: History) -> None:
    assert name in {violation.invariant for violation in check(history)}


def test_every_invariant_has_three_bad_histories() -> None:
    assert set(BAD) == set(INVARIANTS) == {f"I{n}" for n in (*range(1, 33), 34, 35, 36)}
    assert all(len(bad) >= 3 for bad in BAD.values())


def test_every_invariant_reports_its_name() -> None:
    for name, invariant in INVARIANTS.items():
        assert (invariant.__doc__ or "").startswith(f"{name}: ")


def test_recoveries_are_from_the_kill_to_the_next_claim() -> None:
    assert recoveries(GOOD["killed, crashed, done by another"]) == [2.0]
    assert recoveries(GOOD["killed while the store was away"]) == [pytest.approx(17.0)]
    assert recoveries(GOOD["stopped, lost, done by another, the first body going on"]) == []


async def test_the_history_of_a_store_is_read_and_passes() -> None:
    """One job for each kind of end. The result of a body is the token under which it was written."""
    app = Mainspring()

    @app.task(name="good")
    def good(ctx: Context) -> int:
        return ctx.token

    @app.task(name="again", retries=1, backoff="1s")
    def again(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise ValueError("first")
        return ctx.token

    @app.task(name="hopeless", retries=0)
    def hopeless() -> None:
        raise ValueError("always")

    async with app.test() as t:
        jobs = [
            await good.aenqueue(),
            await again.aenqueue(),
            await hopeless.aenqueue(),
            await good.options(delay="1h").aenqueue(),
            await good.options(expires="1m").aenqueue(),
        ]
        await jobs[3].acancel()
        t.clock.advance("2m")
        await t.adrain(future=True)
        with pytest.raises(JobDead):
            await jobs[2].aresult()
        await jobs[2].aretry()
        await t.adrain(future=True)
        tokens = {(await job.ainfo()).token for job in jobs[:2]}
        store = await app.client.store()
        stored = await read(store, shown=lambda row: row.token if row.state is State.SUCCEEDED else None)
    history = History(
        events=stored.events,
        listed=stored.listed,
        snapshots=(stored.snapshot,),
        calls=(ClientCall(verb="enqueue", jobs=tuple(str(job.id) for job in jobs), answer="ok"),),
    )
    assert check(history) == []
    ends = {event.job: event for event in stored.events}
    assert [ends[str(job.id)].state for job in jobs] == [
        State.SUCCEEDED, State.SUCCEEDED, State.DEAD, State.CANCELLED, State.CANCELLED,
    ]  # fmt: skip
    assert {event.wrote for event in stored.events} == {None, *tokens}
    assert [event.epoch for event in stored.events if event.state is State.DEAD] == [2]


async def test_the_history_of_flows_is_read_and_passes() -> None:
    """A chain, a chord whose member dies, and a group of which all members are known late."""
    app = Mainspring()

    @app.task(name="add")
    def add(a: int, b: int = 1) -> int:
        return a + b

    @app.task(name="fail", retries=0)
    def fail(a: int) -> int:
        raise ValueError(a)

    @app.task(name="numbers")
    def numbers(n: int) -> list[int]:
        return list(range(n))

    @app.task(name="total")
    def total(values: list[int]) -> int:
        return sum(values)

    async with app.test() as t:
        chain = await (add.s(1) | add | add).aenqueue()
        await (group(add.s(1), fail.s(2), add.s(3)) | total).aenqueue()
        each = await (numbers.s(4).each(add) | total).aenqueue()
        await t.adrain()
        assert (await chain.aresult(), await each.aresult()) == (4, 10)
        stored = await read(await app.client.store())
    history = History(events=stored.events, edges=stored.edges, joins=stored.joins)
    assert check(history) == []
    assert len(stored.joins) == 5
    assert {edge.policy for edge in stored.edges} == {"fail", "member"}
    told_twice = tuple(replace(join, total=join.total + 1) for join in stored.joins)
    assert {v.invariant for v in check(replace(history, joins=told_twice))} == {"I30"}
    claims = [event for event in stored.events if event.action is Action.CLAIM]
    early = replace(history, events=tuple(replace(e, at=0.0) if e in claims else e for e in stored.events))
    assert "I32" in {violation.invariant for violation in check(early)}
