"""Sends a turn until the store answers it.

When the outcome is unknown (the store was away, gave no answer in time, or failed in a way that we
do not know) the very same turn is sent again: the store tells a repeat by its number. Only a
``StoreConflict`` says that nothing was applied; if it stays, the turn is sent with half of its acks,
down to the one that cannot be stored, which is then said in plainer words.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from msgspec.structs import replace

from mainspring.codec import describe_error, dumps
from mainspring.errors import ResultNotSerializable, StoreConflict
from mainspring.outcomes import Ack
from mainspring.records import Turned
from mainspring.states import Reason
from mainspring.stores.base import Store, Turn
from mainspring.worker.trouble import Trouble

log = logging.getLogger("mainspring.worker")

_CONFLICTS = 3
_SAID = describe_error(ResultNotSerializable("the result cannot be stored"))
_UNSTORABLE = dumps(_SAID)


class Answer(NamedTuple):
    reply: Turned
    turn: Turn
    """The turn that was answered: perhaps with fewer acks than were asked for."""
    left: list[Ack]
    """Acks that were taken out of it, to be sent with the next."""


class Asker:
    """One turn at a time."""

    def __init__(self, store: Store) -> None:
        self.recovered = False
        """Whether the last answer came after failures."""
        self._store = store
        self._trouble = Trouble("a turn with the store", log)

    async def ask(self, turn: Turn) -> Answer:
        """The answer, however long it takes. A store that refuses even an empty turn has lost the worker."""
        conflicts = 0
        left: list[Ack] = []
        while True:
            try:
                reply = await self._store.turn(turn)
            except StoreConflict as error:
                pause = self._trouble.failed(error)
                conflicts += 1
                if conflicts % _CONFLICTS == 0:
                    lighter = _lightened(turn, left)
                    if lighter is None:
                        log.error("the store refuses the turns of worker %s for good: %s", turn.worker, error)
                        return Answer(Turned(0, lost=True), turn, [])
                    turn = lighter
            except Exception as error:  # noqa: BLE001 - whatever it is, the only safe thing is to say it again
                pause = self._trouble.failed(error)
            else:
                self.recovered = self._trouble.over()
                return Answer(reply, turn, left)
            await asyncio.sleep(pause)


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
