"""Enqueue without an event loop: in the calling thread, on a connection of ours or in a caller's own transaction."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
from msgspec.structs import replace

from mainspring.jobs.records import Batch, Enqueued
from mainspring.stores.postgres import enqueue, migrate
from mainspring.stores.postgres.callers import IDENTITY, Callers, refuse_inside
from mainspring.stores.postgres.limits import limits_json
from mainspring.stores.postgres.listen import RING, RING_INSIDE, Bell, ready_queues
from mainspring.stores.postgres.queues import queues_json
from mainspring.stores.postgres.ringing import SETTLE, Ringing
from mainspring.stores.postgres.session import Rows, Sessions, Step, run
from mainspring.stores.postgres.statements import fill

_MAKE = "select {schema}.make_limits_v1(%(limits)s::jsonb), {schema}.make_queues_v1(%(queues)s::jsonb)"


class Blocking:
    """The blocking side of one store."""

    def __init__(self, sessions: Sessions, schema: str, url: str, bell: Bell) -> None:
        self.looked = False
        """Whether the schema's version is known to be good. A program that only enqueues opens nothing."""
        self._sessions = sessions
        self._schema = schema
        self._url = url
        self._bell = bell
        self._known: tuple[Any, ...] | None = None
        self._callers = Callers(schema, self._identity)

    def enqueue(self, batch: Batch, connection: Any, now: int | None) -> list[Enqueued]:
        if not self.looked:
            migrate.check_now(self._sessions.rows_now, self._schema, self._url)
            self.looked = True
        if connection is not None and (batch.limits or batch.queues):
            # Made in a transaction of our own: whoever names one that an open transaction has made waits for its end.
            made = {"limits": limits_json(batch.limits), "queues": queues_json(batch.queues)}
            self._sessions.rows_now(fill(_MAKE, self._schema), made)
            batch = replace(batch, limits=(), queues=())
        call = enqueue.call(batch, self._schema, now, open_=connection is not None)
        if connection is None:
            return enqueue.reply(batch, self._insert(batch, call))
        refuse_inside(batch)
        rows = self._callers.run(connection, *call)
        run(connection, RING_INSIDE, {"channels": self._bell.channels(ready_queues(batch) | enqueue.freed(rows))})
        return enqueue.reply(batch, rows)

    def _insert(self, batch: Batch, call: Step) -> Rows:
        ringing = Ringing(self._bell, batch, call)
        rows = self._sessions.rows_now(*ringing.step, may_wait=batch.retry or enqueue.may_wait(batch))
        rows = ringing.ran(rows)
        if ringing.unsettled and self._sessions.patient:
            self._sessions.rows_now(*SETTLE)
        if channels := ringing.left(rows):
            with suppress(psycopg.Error):
                self._sessions.rows_now(RING, {"channels": channels})
        return rows

    def _identity(self) -> tuple[Any, ...]:
        if self._known is None:
            (self._known,) = self._sessions.rows_now(fill(IDENTITY, self._schema), {})
        return self._known
