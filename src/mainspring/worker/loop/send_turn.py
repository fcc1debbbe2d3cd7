"""Sends a turn until the store answers it.

When the outcome is unknown (the store was away, gave no answer in time, or failed in a way that we
do not know) the very same turn is sent again: the store tells a repeat by its number. Only a
``StoreConflict`` says that nothing was applied; if it stays, the turn is sent with half of its acks,
down to the one that cannot be stored, which is then said in plainer words.

An answer over a network is not waited for as long as a door would: a connection that died without a
word would keep the worker from a store that is there. Where nobody else has trouble, the store may just
be slow: then the turn gets the door's whole time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from msgspec.structs import replace

from mainspring.codec import describe_error, dumps
from mainspring.common.clock import boottime
from mainspring.errors import ResultNotSerializable, StoreConflict, StoreFull, StoreUnavailable
from mainspring.jobs.outcomes import Ack
from mainspring.states import Reason
from mainspring.stores.base import Store
from mainspring.worker.loop.outage import Outage
from mainspring.worker.loop.retry_log import RetryLog
from mainspring.worker.records import Turn, TurnResult

log = logging.getLogger("mainspring.worker")

QUICK = 3.0
"""Seconds to wait for an answer over a network."""
_QUICK_TRIES = 3
_CONFLICTS = 3
_SAID = describe_error(ResultNotSerializable("the result cannot be stored"))
_UNSTORABLE = dumps(_SAID)


class TurnAnswer(NamedTuple):
    reply: TurnResult
    turn: Turn
    """The turn that was answered: perhaps with fewer acks than were asked for."""
    left: list[Ack]
    """Acks that were taken out of it, to be sent with the next."""


class TurnSender:
    """One turn at a time."""

    def __init__(self, store: Store, outage: Outage) -> None:
        self.recovered = False
        """Whether the last answer came after failures."""
        self.tried_at = 0.0
        """When a try last came to its end, whatever that was."""
        self._store = store
        self._outage = outage
        self._trouble = RetryLog("a turn", log, outage)
        self._room = RetryLog("claiming", log)

    async def ask(self, turn: Turn) -> TurnAnswer:
        """The answer, however long it takes. A store that refuses even an empty turn has lost the worker."""
        conflicts = 0
        left: list[Ack] = []
        while True:
            try:
                reply = await self._answer(turn)
            except StoreConflict as error:
                pause = self._trouble.failed(error)
                conflicts += 1
                if conflicts % _CONFLICTS == 0:
                    lighter = _lightened(turn, left)
                    if lighter is None:
                        log.error("the store refuses the turns of worker %s for good: %s", turn.worker, error)
                        return TurnAnswer(TurnResult(0, lost=True), turn, [])
                    turn = lighter
            except Exception as error:  # noqa: BLE001 - whatever it is, the only safe thing is to say it again
                pause = self._trouble.failed(error)
            else:
                self.recovered = self._trouble.over()
                self._note_room(turn, reply)
                return TurnAnswer(reply, turn, left)
            await asyncio.sleep(pause)

    def _note_room(self, turn: Turn, reply: TurnResult) -> None:
        """Say once that there is no work because there is no room, and once that there is again."""
        if reply.full:
            self._room.failed(StoreFull("the store is full and hands out no jobs", url=self._store.url))
        elif turn.wants:
            self._room.over()

    async def _answer(self, turn: Turn) -> TurnResult:
        try:
            async with asyncio.timeout(self._limit()):
                return await self._store.turn(turn)
        except TimeoutError as late:
            raise StoreUnavailable(f"turn: {self._store.url} gave no answer in {QUICK:g} s") from late
        finally:
            self.tried_at = boottime()

    def _limit(self) -> float | None:
        if self._store.engine == "sqlite":
            return None
        slow = self._trouble.failures >= _QUICK_TRIES and not self._outage.beside(self._trouble.what)
        return None if slow else QUICK


def unstorable(ack: Ack) -> Ack | None:
    """What is said instead of an ack that cannot be stored; None if it was that already."""
    if ack.error == _UNSTORABLE:
        return None
    return Ack.dead(ack.lease, _UNSTORABLE, Reason.NOT_RETRYABLE, label=_SAID.type)


def _lightened(turn: Turn, left: list[Ack]) -> Turn | None:
    """The turn with less in it; None if there is nothing left to take out."""
    acks = turn.acks
    if len(acks) > 1:
        half = len(acks) // 2
        left[:0] = acks[half:]
        return replace(turn, acks=acks[:half])
    plainer = unstorable(acks[0]) if acks else None
    return None if plainer is None else replace(turn, acks=(plainer,))
