"""Group commit: many callers share one transaction, and each gets its own answer."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mainspring.common.ids import new_id
from mainspring.errors import InvalidOption, StoreConflict, StoreUnavailable, WouldDeadlock
from mainspring.jobs.query import Query
from mainspring.jobs.records import Edge, Enqueued
from mainspring.states import State
from mainspring.stores.records import Document
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.documents import put_document
from mainspring.stores.sqlite.driver import write_lock
from mainspring.stores.sqlite.driver.transaction import Tx

from .helpers import PATIENCE, batch, close, enqueue, job, run, states


class BlockedWriter:
    """Blocks the writer in the middle of a call until ``release``, so that a group of calls gathers."""

    def __init__(self, store: SqliteStore) -> None:
        self.entered, self.let_go = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=lambda: store.database.writer.do(self._wait))
        self.thread.start()
        assert self.entered.wait(PATIENCE)

    def _wait(self, _: Tx) -> None:
        self.entered.set()
        assert self.let_go.wait(PATIENCE)

    def release(self) -> None:
        self.let_go.set()
        self.thread.join(PATIENCE)


def gathered(store: SqliteStore, n: int) -> None:
    """Check that ``n`` calls wait for the writer: a caller hands its call in before its first await returns."""
    assert len(store.database.writer._pending) == n


@pytest.mark.asyncio
class TestGroups:
    async def test_one_failing_call_fails_alone(self, store: SqliteStore) -> None:
        held = BlockedWriter(store)
        good, late = job(), job()
        bad = job(after=(Edge(new_id().bytes),))
        calls = [asyncio.ensure_future(store.enqueue(batch(each))) for each in (good, bad, late)]
        await asyncio.sleep(0)
        gathered(store, 3)
        held.release()
        first, second, third = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(second, StoreConflict)
        assert [first, third] == [[Enqueued(good.id, True)], [Enqueued(late.id, True)]]
        assert await states(store) == {State.READY: 2}

    async def test_the_writes_of_a_failing_call_are_undone(self, store: SqliteStore) -> None:
        def write_and_fail(tx: Tx) -> None:
            tx.run("put_document", ("kind", "half", 1, b""))
            raise ZeroDivisionError

        held = BlockedWriter(store)
        calls = [
            store.database.writer.send(write_and_fail),
            store.database.writer.send(lambda tx: put_document(tx, Document("kind", "whole", 1, b""))),
        ]
        gathered(store, 2)
        held.release()
        failed, _ = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(failed, ZeroDivisionError)
        assert [doc.name for doc in await store.documents("kind")] == ["whole"]

    async def test_calls_that_wait_share_one_commit(self, store: SqliteStore, path: Path) -> None:
        """Counted in frames of the log: 20 single commits would write the same pages 20 times."""

        def frames() -> int:
            return int((Path(f"{path}-wal").stat().st_size - 32) // 4120)

        await store.enqueue(batch(job()))
        before = frames()
        await store.enqueue(batch(job()))
        alone = frames() - before
        held = BlockedWriter(store)
        calls = [asyncio.ensure_future(store.enqueue(batch(job()))) for _ in range(20)]
        await asyncio.sleep(0)
        gathered(store, 20)
        before = frames()
        held.release()
        await asyncio.gather(*calls)
        assert frames() - before < 4 * alone
        assert await states(store) == {State.READY: 22}

    async def test_an_abandoned_call_is_not_run(self, store: SqliteStore) -> None:
        """The deadline of the caller passed while the call waited."""
        held = BlockedWriter(store)
        call = asyncio.ensure_future(store.enqueue(batch(job())))
        await asyncio.sleep(0)
        gathered(store, 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        held.release()
        await store.enqueue(batch(job()))
        assert await states(store) == {State.READY: 1}

    @pytest.mark.parametrize("n", [1, 2])
    async def test_a_row_that_the_schema_refuses_fails_its_batch(self, store: SqliteStore, n: int) -> None:
        good = [job() for _ in range(n - 1)]
        with pytest.raises(StoreConflict):
            await store.enqueue(batch(*good, job(id=b"too short")))
        assert await states(store) == {}

    async def test_an_error_that_is_not_of_sqlite_is_raised_unchanged(self, store: SqliteStore) -> None:
        def broken(_: Tx) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await store.database.write(broken)
        await store.enqueue(batch(job()))

    async def test_reads_do_not_wait_for_a_commit(self, store: SqliteStore) -> None:
        await store.enqueue(batch(job()))
        held = BlockedWriter(store)
        assert await states(store) == {State.READY: 1}
        held.release()


class TestThreadsAndLoops:
    def test_many_threads_and_loops_use_one_store(self, path: Path) -> None:
        """Blocking callers and several event loops."""
        store = SqliteStore(str(path), durability="normal")

        def blocking(_: int) -> None:
            for _ in range(20):
                enqueue(store, job())

        def looping(_: int) -> None:
            for _ in range(4):
                run(store.enqueue(batch(*(job() for _ in range(5)))))

        with ThreadPoolExecutor(6) as threads:
            done = [threads.submit(work, n) for n in range(3) for work in (blocking, looping)]
            for each in done:
                each.result(PATIENCE)
        assert run(states(store)) == {State.READY: 120}
        run(close(store))

    def test_a_blocking_enqueue_starts_no_thread(self, path: Path) -> None:
        store = SqliteStore(str(path))
        before = set(threading.enumerate())  # a thread of another test may end meanwhile
        enqueue(store, job())
        assert set(threading.enumerate()) <= before
        run(close(store))

    def test_after_close_calls_are_refused(self, path: Path) -> None:
        store = SqliteStore(str(path))
        enqueue(store, job())
        run(close(store, store))
        with pytest.raises(StoreUnavailable):
            enqueue(store, job())
        with pytest.raises(StoreUnavailable):
            run(store.count(Query.everything()))


class TestSettings:
    @pytest.mark.parametrize("durability", ["full", "normal"])
    def test_commits_do_not_sync_with_the_write_lock_held(self, path: Path, durability: str) -> None:
        store = SqliteStore(str(path), durability=durability)
        assert run(store.durability()) == f"sqlite:{durability}"
        assert store.database.writer.do(lambda tx: tx.cursor.execute("pragma synchronous").fetchone()[0]) == 1
        assert store.database.writer.do(lambda tx: tx.cursor.execute("pragma journal_mode").fetchone()[0]) == "wal"
        run(close(store))

    def test_an_unknown_durability_or_namespace_is_refused(self, path: Path) -> None:
        with pytest.raises(InvalidOption, match="durability"):
            SqliteStore(str(path), durability="off")
        with pytest.raises(InvalidOption, match="namespace"):
            SqliteStore(str(path), namespace="x; drop")

    def test_a_store_in_memory_works(self) -> None:
        store = SqliteStore(":memory:")
        enqueue(store, job(), job())
        assert run(states(store)) == {State.READY: 2}
        run(close(store))

    def test_the_clock_never_goes_back(self, path: Path) -> None:
        class Stepped:
            now = 2_000_000

            def now_us(self) -> int:
                return self.now

        clock = Stepped()
        store = SqliteStore(str(path), clock=clock)
        first = store.database.writer.do(lambda tx: tx.now)
        clock.now = 1_000_000
        assert store.database.writer.do(lambda tx: tx.now) == first
        run(close(store))


class TestReentry:
    """A signal handler or a finaliser enqueues in the middle of an enqueue of the same thread."""

    def test_a_nested_enqueue_raises_instead_of_waiting_for_itself(self, tmp_path: Path) -> None:
        store = SqliteStore(str(tmp_path / "jobs.db"))
        inner = job()

        def interrupted(_: Tx) -> None:
            with pytest.raises(WouldDeadlock, match="Set a flag"):
                store.enqueue_now(batch(inner))

        store.database.writer.do(interrupted)
        assert store.enqueue_now(batch(inner)) == [Enqueued(inner.id, True)], "nothing is left locked"
        run(store.close())

    def test_an_enqueue_waits_for_a_fork_of_another_thread(self, tmp_path: Path) -> None:
        """The other thread has the lock, not the thread that had it last."""
        store = SqliteStore(str(tmp_path / "jobs.db"))
        store.enqueue_now(batch(job()))
        late = job()
        forking, forked = threading.Event(), threading.Event()

        def fork() -> None:
            store.database.writer.before_fork(PATIENCE)
            forking.set()
            forked.wait(PATIENCE)
            store.database.writer.after_fork_in_parent()

        thread = threading.Thread(target=fork)
        thread.start()
        assert forking.wait(PATIENCE)
        threading.Timer(0.1, forked.set).start()
        assert store.enqueue_now(batch(late)) == [Enqueued(late.id, True)]
        thread.join(PATIENCE)
        run(store.close())

    async def test_a_nested_enqueue_raises_in_the_thread_of_the_writer(self, store: SqliteStore) -> None:
        def interrupted(_: Tx) -> None:
            with pytest.raises(WouldDeadlock):
                store.enqueue_now(batch(job()))

        await store.database.writer.send(interrupted)


class TestSyncs:
    """With full durability a call is answered when the log is on the disk."""

    @pytest.fixture
    def synced(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
        """For each sync of the log: whether another connection could begin to write meanwhile."""
        lock_was_free: list[bool] = []
        sync = write_lock._sync

        def sync_and_look(file: int) -> None:
            assert os.path.samestat(os.fstat(file), Path(f"{path}-wal").stat())
            other = sqlite3.connect(path, isolation_level=None, timeout=0)
            try:
                other.execute("begin immediate")
            except sqlite3.OperationalError:
                lock_was_free.append(False)
            else:
                lock_was_free.append(True)
            finally:
                other.close()
            sync(file)

        monkeypatch.setattr(write_lock, "_sync", sync_and_look)
        return lock_was_free

    def test_each_write_is_synced_without_the_write_lock(self, path: Path, synced: list[bool]) -> None:
        store = SqliteStore(str(path))
        enqueue(store, job())
        assert synced == [True]
        enqueue(store, job(), job())
        assert synced == [True, True]
        run(close(store))

    def test_a_transaction_that_changes_nothing_is_not_synced(self, path: Path, synced: list[bool]) -> None:
        store = SqliteStore(str(path))
        enqueue(store, job())
        store.database.writer.do(lambda tx: tx.cursor.execute("select 1").fetchall())
        assert synced == [True]
        run(close(store))

    def test_normal_durability_never_syncs(self, path: Path, synced: list[bool]) -> None:
        store = SqliteStore(str(path), durability="normal")
        enqueue(store, job())
        assert synced == []
        run(close(store))

    def test_the_log_of_a_new_connection_is_synced(self, path: Path, synced: list[bool]) -> None:
        store = SqliteStore(str(path))
        enqueue(store, job())
        assert store.database.writer.drop(PATIENCE)  # the last connection: SQLite deletes the log
        enqueue(store, job())
        assert synced == [True, True]
        run(close(store))

    def test_a_failed_sync_is_an_unknown_outcome(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The call is not run again: it may be on the disk. The caller repeats it under its batch id."""
        store = SqliteStore(str(path))
        enqueue(store, job())

        def fail(file: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(write_lock, "_sync", fail)
            with pytest.raises(StoreUnavailable, match="could not be synced"):
                enqueue(store, job())
        assert run(states(store)) == {State.READY: 2}
        enqueue(store, job())
        run(close(store))
