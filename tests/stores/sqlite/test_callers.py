"""Jobs inside the caller's own transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.common.ids import new_id
from mainspring.errors import (
    InCallerTransaction,
    KeyTaken,
    QueueDraining,
    SchemaOutdated,
    StoreConflict,
    WrongConnection,
)
from mainspring.jobs.records import Edge, Enqueued, UniqueKey
from mainspring.queues.records import QueueMode
from mainspring.states import State
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.driver import write_lock

from .helpers import batch, close, enqueue, job, run, states


@pytest.fixture
def opened(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(str(path))
    run(store.open())
    yield store
    run(close(store))


@pytest.fixture
def mine(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


class TestTransaction:
    def test_a_job_in_the_callers_transaction_appears_with_the_commit(
        self, opened: SqliteStore, mine: sqlite3.Connection
    ) -> None:
        mine.execute("create table orders (x)")
        mine.execute("insert into orders values (1)")
        assert enqueue(opened, job(), connection=mine)[0].created
        assert run(states(opened)) == {}
        mine.commit()
        assert run(states(opened)) == {State.READY: 1}

    def test_a_job_in_the_callers_transaction_never_appears_after_a_rollback(
        self, opened: SqliteStore, mine: sqlite3.Connection
    ) -> None:
        mine.execute("create table orders (x)")
        mine.execute("insert into orders values (1)")
        enqueue(opened, job(), connection=mine)
        mine.rollback()
        assert run(states(opened)) == {}

    def test_a_transaction_begins_where_sqlite3_implies_one(
        self, opened: SqliteStore, mine: sqlite3.Connection
    ) -> None:
        enqueue(opened, job(), connection=mine)
        assert mine.in_transaction
        mine.rollback()
        assert run(states(opened)) == {}

    def test_a_refused_batch_keeps_the_changes_of_the_caller(
        self, opened: SqliteStore, mine: sqlite3.Connection
    ) -> None:
        mine.execute("create table orders (x)")
        mine.execute("insert into orders values (1)")
        with pytest.raises(StoreConflict):
            enqueue(opened, job(), job(after=(Edge(new_id().bytes),)), connection=mine)
        mine.commit()
        assert mine.execute("select count(*) from orders").fetchone() == (1,)
        assert run(states(opened)) == {}

    def test_a_refused_key_or_mode_keeps_the_changes_of_the_caller(
        self, opened: SqliteStore, mine: sqlite3.Connection
    ) -> None:
        """The job that the batch would have replaced is unchanged, and the caller can continue."""
        enqueue(opened, holder := job(unique=UniqueKey(b"k" * 16)), job(unique=UniqueKey(b"o" * 16)))
        run(opened.set_queue_mode(["closing"], QueueMode.DRAINING))
        mine.execute("create table orders (x)")
        mine.execute("insert into orders values (1)")
        replacing = job(unique=UniqueKey(b"k" * 16, conflict="replace"))
        with pytest.raises(KeyTaken):
            enqueue(opened, replacing, job(unique=UniqueKey(b"o" * 16, conflict="error")), connection=mine)
        with pytest.raises(QueueDraining):
            enqueue(opened, replacing, job(queue="closing"), connection=mine)
        said = enqueue(opened, job(unique=UniqueKey(b"k" * 16)), connection=mine)
        assert said == [Enqueued(holder.id, False)]
        mine.commit()
        assert mine.execute("select count(*) from orders").fetchone() == (1,)
        assert run(states(opened)) == {State.READY: 2}

    def test_a_key_is_taken_with_the_commit(self, opened: SqliteStore, mine: sqlite3.Connection) -> None:
        enqueue(opened, job(unique=UniqueKey(b"k" * 16)), connection=mine)
        mine.rollback()
        assert enqueue(opened, job(unique=UniqueKey(b"k" * 16)))[0].created

    def test_row_and_text_factories_of_the_caller_do_not_matter(
        self, opened: SqliteStore, mine: sqlite3.Connection
    ) -> None:
        mine.row_factory = sqlite3.Row
        mine.text_factory = bytes
        dead = job()
        enqueue(opened, dead, job(after=(Edge(dead.id),)), connection=mine)
        assert (mine.row_factory, mine.text_factory) == (sqlite3.Row, bytes)
        mine.commit()
        assert run(states(opened)) == {State.READY: 1, State.BLOCKED: 1}


class TestRefused:
    def test_another_kind_of_connection_is_refused(self, opened: SqliteStore) -> None:
        with pytest.raises(WrongConnection, match=r"builtins\.object"):
            enqueue(opened, job(), connection=object())

    @pytest.mark.parametrize("other", [":memory:", "other.db"])
    def test_a_connection_to_another_database_is_refused(self, opened: SqliteStore, tmp_path: Path, other: str) -> None:
        theirs = sqlite3.connect(other if other == ":memory:" else tmp_path / other)
        with pytest.raises(WrongConnection, match="same file"):
            enqueue(opened, job(), connection=theirs)
        theirs.close()

    def test_a_connection_without_a_transaction_is_refused(self, opened: SqliteStore, path: Path) -> None:
        theirs = sqlite3.connect(path, isolation_level=None)
        with pytest.raises(WrongConnection, match="BEGIN IMMEDIATE"):
            enqueue(opened, job(), connection=theirs)
        theirs.close()

    def test_a_connection_to_the_same_file_by_another_name_is_accepted(
        self, opened: SqliteStore, path: Path, tmp_path: Path
    ) -> None:
        link = tmp_path / "link.db"
        link.symlink_to(path)
        theirs = sqlite3.connect(link)
        assert enqueue(opened, job(), connection=theirs)[0].created
        theirs.close()

    def test_a_connection_to_a_file_without_tables_is_refused(self, path: Path) -> None:
        store = SqliteStore(str(path))
        theirs = sqlite3.connect(path)
        with pytest.raises(SchemaOutdated, match="before the transaction"):
            enqueue(store, job(), connection=theirs)
        theirs.close()
        run(close(store))


class TestForgottenConnection:
    """An enqueue without ``connection=`` while the same thread holds a write transaction cannot succeed."""

    @pytest.fixture(autouse=True)
    def _short_patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(write_lock, "OWN_PATIENCE", 0.05)
        monkeypatch.setattr(write_lock, "PATIENCE", 5.0)

    def test_the_error_names_the_fix(self, opened: SqliteStore, mine: sqlite3.Connection) -> None:
        mine.execute("begin immediate")
        with pytest.raises(InCallerTransaction, match="connection="):
            enqueue(opened, job())
        mine.rollback()
        assert enqueue(opened, job())[0].created

    def test_the_error_names_the_fix_when_awaited(self, opened: SqliteStore, mine: sqlite3.Connection) -> None:
        async def forget(made: Any) -> None:
            await opened.enqueue(made)

        mine.execute("begin immediate")
        with pytest.raises(InCallerTransaction, match="connection="):
            run(forget(batch(job())))
        mine.rollback()
