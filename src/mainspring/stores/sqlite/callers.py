"""Enqueue inside a caller's own transaction, and what happens when that was forgotten."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mainspring.errors import InCallerTransaction, MainspringError, SchemaOutdated, StoreUnavailable

from .connections import check_callers, plain_cursor
from .schema import VERSION, version_of

if TYPE_CHECKING:
    from mainspring.jobs.records import Enqueued

    from .gate import Gate

    Enqueueds = list[Enqueued]


def enqueue_in_callers(connection: Any, path: str, enqueue: Callable[[sqlite3.Cursor], Enqueueds]) -> Enqueueds:
    """Run ``enqueue`` inside the caller's transaction, all of it or nothing.

    The caller commits, and nobody hears of that here: workers find the jobs by their poll.
    """
    check_callers(connection, path)
    text_factory, connection.text_factory = connection.text_factory, str
    try:
        return enqueue(plain_cursor(connection))
    finally:
        connection.text_factory = text_factory


def check_schema(cursor: sqlite3.Cursor, namespace: str, url: str) -> None:
    """Whether the tables are there: they are made when the store is opened, never in a caller's transaction."""
    found = version_of(cursor, namespace)
    if found != VERSION:
        raise SchemaOutdated(
            f"the file has schema number {found} for namespace {namespace!r}, {VERSION} is needed",
            url=url,
            hint="Open the app (app.open()) before the transaction begins: that makes the tables.",
        )


def explain_busy(gate: Gate, url: str) -> MainspringError:
    """Why an enqueue waited in vain."""
    if gate.held_by_this_process():
        return InCallerTransaction(
            "enqueue waited for a write transaction that this same process holds open on the SQLite file",
            hint="Pass connection=... so that the job joins that transaction, or commit before enqueueing.",
        )
    return StoreUnavailable(
        "the SQLite file was locked by another writer for too long",
        url=url,
        hint="If the transaction is this thread's own, pass connection=...; else let the other writer commit sooner.",
    )
