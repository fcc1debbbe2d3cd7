"""Every state x every action, generated from the transition table.

A job is brought into the state through the contract, then the action is done to it. Where the table
has the step, the job must be in one of its targets; where it has not, the job must be what it was,
byte for byte.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import FlowRetry, NewJob
from mainspring.states import Action, Reason, State, sources, targets
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import ERROR, HOUR, Hand, job, lease, one, put_in, row
from mainspring.worker.records import Claim, Want

__all__ = ["TestActionsOfUsers", "TestTransitions"]

BY_HAND = (Action.RUN_NOW, Action.REPRIORITISE, Action.RETRY, Action.DELETE)
FAR = 100 * HOUR


class Scene(NamedTuple):
    """A job in the state that is asked for, the worker that last owned it, and its parent's worker."""

    store: Store
    clock: MovableClock
    job: NewJob
    owner: Hand
    parent: Claim
    parent_owner: Hand


async def arrange(store: Store, clock: MovableClock, state: State, action: Action) -> Scene:
    """Bring a fresh job into ``state``; its parent has succeeded unless the job waits for it."""
    parent_owner, owner = await Hand(store).join(), await Hand(store).join()
    await one(store, parent_job := job(queue="parents"))
    parent = await parent_owner.take_one("parents/any")
    expires = 10 * HOUR if action is Action.EXPIRE else None
    made = job(after=[parent_job], expires_in=expires, delay=FAR if state is State.SCHEDULED else 0)
    await put_in(store, made)
    scene = Scene(store, clock, made, owner, parent, parent_owner)
    if state is not State.BLOCKED:
        await parent_owner.succeed(parent)
    if state not in (State.BLOCKED, State.SCHEDULED, State.READY):
        await _past_claim(scene, state)
    assert (await row(store, made)).state is state
    return scene


async def _past_claim(scene: Scene, state: State) -> None:
    claim = await scene.owner.take_one()
    ends = {
        State.RETRYING: Ack.failed(lease(claim), ERROR, retry_in=FAR),
        State.SUCCEEDED: Ack.succeeded(lease(claim), b"1"),
        State.DEAD: Ack.dead(lease(claim), ERROR, Reason.NOT_RETRYABLE),
        State.CANCELLED: Ack.cancelled(lease(claim)),
    }
    if state is not State.RUNNING:
        await scene.owner.turn(ends[state])


def _ack(make: Callable[[Lease], Ack]) -> Callable[[Scene], Awaitable[object]]:
    """The owner reports with the last token that the job has had."""

    async def report(scene: Scene) -> object:
        held = Lease(scene.job.id, (await row(scene.store, scene.job)).token)
        return await scene.owner.turn(make(held))

    return report


def _act(action: Action) -> Callable[[Scene], Awaitable[object]]:
    return lambda scene: scene.store.act(action, Query(ids=(scene.job.id,)), priority=7)


async def _promote(scene: Scene) -> None:
    scene.clock.advance("101h")
    await scene.store.promote()


async def _expire(scene: Scene) -> None:
    scene.clock.advance("11h")
    await scene.store.promote()


DEEDS: dict[Action, Callable[[Scene], Awaitable[object]]] = {
    Action.ENQUEUE: lambda scene: put_in(scene.store, scene.job, retry=True),
    Action.UNBLOCK: lambda scene: scene.parent_owner.turn(Ack.succeeded(lease(scene.parent))),
    Action.PROMOTE: _promote,
    Action.CLAIM: lambda scene: scene.owner.turn(wants=[Want(("q/any",), 9)]),
    Action.ACK_SUCCEEDED: _ack(lambda held: Ack.succeeded(held, b"2")),
    Action.ACK_FAILED: _ack(lambda held: Ack.failed(held, b"2", retry_in=HOUR)),
    Action.ACK_TIMED_OUT: _ack(lambda held: Ack.dead(held, b"2", Reason.TIMED_OUT, timed_out=True)),
    Action.ACK_SNOOZED: _ack(lambda held: Ack.snoozed(held, delay=HOUR)),
    Action.ACK_CANCELLED: _ack(lambda held: Ack.cancelled(held, b"2")),
    Action.ACK_INTERRUPTED: _ack(lambda held: Ack.interrupted(held, b"2")),
    Action.RESCUE: lambda scene: scene.store.rescue(scene.owner.name, scene.owner.beats, Outcome.CRASHED),
    Action.CANCEL: _act(Action.CANCEL),
    Action.EXPIRE: _expire,
    Action.RETRY_FLOW: lambda scene: scene.store.retry_flow([FlowRetry(scene.job.id)]),
    **{action: _act(action) for action in BY_HAND},
}
assert DEEDS.keys() == set(Action)


async def try_pair(store: Store, clock: MovableClock, state: State, action: Action) -> None:
    scene = await arrange(store, clock, state, action)
    before = (await store.find(Query(ids=(scene.job.id,)))).jobs
    await DEEDS[action](scene)
    after = (await store.find(Query(ids=(scene.job.id,)))).jobs
    if state not in sources(action):
        assert after == before
        return
    allowed = targets(action, state)
    assert [each.state for each in after] == [after[0].state] if allowed else after == ()
    assert not allowed or after[0].state in allowed
    assert action is Action.CANCEL or not allowed or after[0] != before[0]


def pairs(actions: list[Action]) -> list[tuple[State, Action]]:
    return [(state, action) for action in actions for state in State]


@pytest.mark.asyncio
class TestTransitions:
    @pytest.mark.parametrize(("state", "action"), pairs([action for action in Action if action not in BY_HAND]))
    async def test_a_transition_of_a_worker_follows_the_table(
        self, store: Store, clock: MovableClock, state: State, action: Action
    ) -> None:
        await try_pair(store, clock, state, action)


@pytest.mark.asyncio
class TestActionsOfUsers:
    @pytest.mark.parametrize(("state", "action"), pairs(list(BY_HAND)))
    async def test_an_action_of_a_user_follows_the_table(
        self, store: Store, clock: MovableClock, state: State, action: Action
    ) -> None:
        await try_pair(store, clock, state, action)

    @pytest.mark.parametrize(("state", "action"), pairs([*BY_HAND, Action.CANCEL]))
    async def test_the_reply_names_changed_and_refused_jobs(
        self, store: Store, clock: MovableClock, state: State, action: Action
    ) -> None:
        """``done`` where the table has the step, otherwise ``refused`` with the state of the job."""
        scene = await arrange(store, clock, state, action)
        said = await store.act(action, Query(ids=(scene.job.id,)))
        if state in sources(action):
            assert (said.done, said.refused) == ((scene.job.id,), ())
        else:
            assert (said.done, said.refused) == ((), ((scene.job.id, state),))
