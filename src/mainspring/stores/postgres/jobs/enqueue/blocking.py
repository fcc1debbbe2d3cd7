"""Enqueue without an event loop: in the calling thread, on a connection of ours or in a caller's own transaction."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
from msgspec.structs import replace

from mainspring.jobs.records import Enqueued, JobBatch
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.driver.session import Rows, run_on
from mainspring.stores.postgres.driver.statements import fill_schema
from mainspring.stores.postgres.driver.wakeups import NOTIFY, NOTIFY_INSIDE, SETTLE, NotifyingEnqueue, ready_queues
from mainspring.stores.postgres.jobs.enqueue.callers import CallerConnections, refuse_inside
from mainspring.stores.postgres.jobs.enqueue.statement import (
    decode_rows,
    enqueue_call,
    enqueue_reply,
    enqueue_short,
    freed_queues,
    may_wait,
)
from mainspring.stores.postgres.limits import limits_json
from mainspring.stores.postgres.queues import queues_json

_DECLARE = "select {schema}.add_limits_v1(%(limits)s::jsonb), {schema}.declare_queues_v1(%(queues)s::jsonb)"


class BlockingProducer:
    """The blocking enqueue of one store."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._callers = CallerConnections(db)

    def enqueue(self, batch: JobBatch, connection: Any = None) -> list[Enqueued]:
        db = self._db
        db.check_now()
        if connection is not None and (batch.limits or batch.queues):
            # In a transaction of our own: every enqueue that names a limit would wait for the end of the caller's one.
            declared = {"limits": limits_json(batch.limits), "queues": queues_json(batch.queues)}
            db.sessions.rows_now(fill_schema(_DECLARE, db.schema), declared)
            batch = replace(batch, limits=(), queues=())
        if connection is None:
            return enqueue_reply(batch, self._insert(batch))
        refuse_inside(batch)
        rows = self._callers.run(connection, *enqueue_call(batch, db.schema, db.now(), open_=True))
        channels = db.notifier.channels(ready_queues(batch) | freed_queues(rows))
        run_on(connection, NOTIFY_INSIDE, {"channels": channels})
        return enqueue_reply(batch, rows)

    def _insert(self, batch: JobBatch) -> Rows:
        sessions = self._db.sessions
        notifying = NotifyingEnqueue(self._db.notifier, batch)
        rows = notifying.own_rows(self._run(batch, notifying))
        if notifying.unsettled and sessions.waits_for_disk:
            sessions.rows_now(*SETTLE)
        if channels := notifying.take_due(freed_queues(rows)):
            with suppress(psycopg.Error):
                sessions.rows_now(NOTIFY, {"channels": channels})
        return rows

    def _run(self, batch: JobBatch, notifying: NotifyingEnqueue) -> Rows:
        db = self._db
        short = enqueue_short(batch, db.schema, db.now()) if db.sessions.takes_native else None
        if short is not None:
            return decode_rows(db.sessions.native_rows_now(notifying.native_step(short)))
        call = notifying.step(enqueue_call(batch, db.schema, db.now()))
        return db.sessions.rows_now(*call, may_wait=batch.retry or may_wait(batch))
