"""Sends a turn until the store answers it.

When the outcome is unknown (the store could not be reached, gave no answer in time, or raised an unknown error), the
same turn is sent again: the store recognises a repeat by its number. Only a ``StoreConflict`` proves that nothing was
applied. If conflicts continue, the turn is sent with half of its acks, down to the single ack that cannot be stored;
that ack is then replaced by one with a plain error.

Over a network a turn waits for an answer for a shorter time than ``stores/door.py`` allows: otherwise a connection that
died silently would keep the worker from a store that can be reached. If only the turns fail and all other calls
succeed, the store may just be slow: then the turn gets the whole time.
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
from mainspring.worker.records import Turn, TurnResult
from mainspring.worker.retry_log import Outage, RetryLog

log = logging.getLogger("mainspring.worker")

QUICK = 3.0
"""Seconds to wait for an answer over a network."""
_QUICK_TRIES = 3
_CONFLICTS = 3
"""Conflicts in a row after which the turn is made smaller."""
_UNSTORABLE = describe_error(ResultNotSerializable("the result cannot be stored"))
_UNSTORABLE_RECORD = dumps(_UNSTORABLE)


class TurnAnswer(NamedTuple):
    """The store's answer to a turn."""

    reply: TurnResult
    turn: Turn
    """The turn that was answered. It may have fewer acks than the turn that was to be sent."""
    deferred: list[Ack]
    """Acks that were taken out of the turn, to be sent with the next one."""


class TurnSender:
    """Sends one turn at a time."""

    def __init__(self, store: Store, outage: Outage) -> None:
        self.recovered = False
        """Whether the last answer came after failures."""
        self.tried_at = 0.0
        """When the last try ended, with or without success."""
        self._store = store
        self._outage = outage
        self._retry_log = RetryLog("sending a turn", log, outage)
        self._full_log = RetryLog("claiming", log)

    async def send(self, turn: Turn) -> TurnAnswer:
        """The answer. Retries until there is one; a store that refuses even an empty turn has lost the worker."""
        conflicts = 0
        deferred: list[Ack] = []
        while True:
            try:
                reply = await self._try_once(turn)
            except StoreConflict as error:
                pause = self._retry_log.record_failure(error)
                conflicts += 1
                if conflicts % _CONFLICTS == 0:
                    smaller = _with_fewer_acks(turn, deferred)
                    if smaller is None:
                        log.error(
                            "the store refuses every turn of worker %s, which takes a new id: %s", turn.worker, error
                        )
                        return TurnAnswer(TurnResult(0, lost=True), turn, [])
                    turn = smaller
            except Exception as error:  # noqa: BLE001 - whatever the error is, only a repeat is safe
                pause = self._retry_log.record_failure(error)
            else:
                self.recovered = self._retry_log.record_success()
                self._log_full_store(turn, reply)
                return TurnAnswer(reply, turn, deferred)
            await asyncio.sleep(pause)

    def _log_full_store(self, turn: Turn, reply: TurnResult) -> None:
        """Log once that the store hands out no jobs because it is full, and once that it hands out jobs again."""
        if reply.full:
            self._full_log.record_failure(StoreFull("the store is full and hands out no jobs", url=self._store.url))
        elif turn.wants:
            self._full_log.record_success()

    async def _try_once(self, turn: Turn) -> TurnResult:
        try:
            async with asyncio.timeout(self._time_limit()):
                return await self._store.turn(turn)
        except TimeoutError as late:
            raise StoreUnavailable(f"turn: {self._store.url} gave no answer in {QUICK:g} s") from late
        finally:
            self.tried_at = boottime()

    def _time_limit(self) -> float | None:
        if self._store.engine == "sqlite":
            return None
        slow = self._retry_log.failures >= _QUICK_TRIES and not self._outage.others_fail(self._retry_log.operation)
        return None if slow else QUICK


def replace_unstorable(ack: Ack) -> Ack | None:
    """The ack to send instead of one that cannot be stored; None if it is such a replacement already."""
    if ack.error == _UNSTORABLE_RECORD:
        return None
    return Ack.dead(ack.lease, _UNSTORABLE_RECORD, Reason.NOT_RETRYABLE, label=_UNSTORABLE.type)


def _with_fewer_acks(turn: Turn, deferred: list[Ack]) -> Turn | None:
    """The turn with half of its acks, the others moved to ``deferred``; None if the turn cannot get smaller."""
    acks = turn.acks
    if len(acks) > 1:
        half = len(acks) // 2
        deferred[:0] = acks[half:]
        return replace(turn, acks=acks[:half])
    plain = replace_unstorable(acks[0]) if acks else None
    return None if plain is None else replace(turn, acks=(plain,))
