"""One database as the store uses it: functions run in transactions of the writer or of the reader.

``SqliteWriter`` has the one writing connection of a process, shared by group commit. Callers submit calls. The thread
that holds the lock runs all pending calls in one transaction, each under a savepoint of its own, and answers them after
the commit (flat combining): a blocking caller needs no other thread, and while one commit waits for the disk the next
group gathers. One thread serves async callers and the bodies of jobs. It starts with the first such call and serves
every call from then on.
"""

# SQLite names files by text, and some of this is asked at every commit:
# ruff: noqa: PTH112, PTH118

from __future__ import annotations

import asyncio
import logging
import math
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.common import job_threads
from mainspring.errors import StoreError, StoreUnavailable, WouldDeadlock
from mainspring.stores.records import MigrationPlan
from mainspring.stores.shared.deadlines import blocking_deadline

from . import files, fork
from .clock import WallClock
from .connections import MEMORY, explain_busy, open_reader, open_writer, run_in_caller_transaction
from .errors import is_busy, is_full, translate
from .files import DiskReserve, FileIdentity, FileUsers
from .reader import FileReplaced, SqliteReader
from .schema import check_version, migrate, plan_migration, prefix_of
from .statements import SqliteStatements
from .transaction import SeqBlock, Tx
from .wakeups import SqliteListener, SqliteWakeups, make_private
from .write_lock import PATIENCE, LogSync, WriteLock, begin

if TYPE_CHECKING:
    from mainspring.common.clock import Clock
    from mainspring.jobs.records import Enqueued

log = logging.getLogger("mainspring.store")

R = TypeVar("R")
LEAVE_SECONDS = 0.1
"""Seconds that a store waits for another store of its process to leave a file that was replaced."""
CLOCK_FILE = "clock"
LARGEST_GROUP = 64
"""The most calls in one transaction."""
_NO_QUEUES: set[str] = set()
_DRIVER_ERRORS = (sqlite3.Error, OverflowError, UnicodeEncodeError)
_SYNCHRONOUS = ("off", "normal", "full", "extra")
"""The values of ``pragma synchronous``, by number."""


class SqliteDatabase:
    """A database file, or a database in memory, with its connections, its files beside it, and its time."""

    def __init__(self, path: str, *, namespace: str, durability: str, clock: Clock | None) -> None:
        self.path = path if path == MEMORY else os.path.realpath(path)
        self.url = "sqlite://" if path == MEMORY else "sqlite:///" + self.path
        self._namespace = namespace
        self._durability = durability
        self._sql = SqliteStatements(prefix_of(namespace))
        self._wall_clock = WallClock()
        self._clock = clock.now_us if clock is not None else self._wall_clock
        self._last = 0
        on_disk = None if path == MEMORY else self.path
        self._folder = None if on_disk is None else on_disk + "-wake"
        self.write_lock = WriteLock(on_disk, None if self._folder is None else os.path.join(self._folder, "waiting"))
        self.reserve = DiskReserve(None if on_disk is None else on_disk + "-reserve", self.url)
        self._wakeups = SqliteWakeups(self._folder)
        self.users = FileUsers(self.path, self._folder, self.url)
        self._identity = FileIdentity(on_disk)
        self._log_sync = LogSync(on_disk if durability == "full" else None)
        self.writer = SqliteWriter(
            self._connect, sql=self._sql, now=self._now, lock=self.write_lock, log_sync=self._log_sync,
            reserve=self.reserve, wake=self._wakeups.wake, identity=self._identity, in_memory=on_disk is None,
            replaced=self._leave_former_file,
        )  # fmt: skip
        self._reader = (
            None
            if on_disk is None
            else SqliteReader(partial(open_reader, self.path), self._sql, self._now, self._identity)
        )
        self._is_checked = False
        self._version_found: int | None = None
        self._is_closed = False
        fork.watch(self)

    # ---- transactions ---------------------------------------------------------------------------

    async def write(self, work: Callable[[Tx], R], *, adds_jobs: bool = False) -> R:
        """Run ``work`` in a writing transaction and return its result after the commit.

        ``adds_jobs``: refuse the call with ``StoreFull`` if the disk is nearly full.
        """
        self._check_open()
        if adds_jobs:
            self.reserve.check()
        try:
            done: R = await self.writer.send(work, adds_jobs=adds_jobs)
            return done
        except _DRIVER_ERRORS as error:
            raise self._explain(error, adds_jobs=adds_jobs) from error

    async def read(self, work: Callable[[Tx], R]) -> R:
        """Run ``work`` on a snapshot. A database in memory has one connection, so there the writer runs it."""
        if self._reader is None or not self.writer.is_open:
            return await self.write(work)
        self._check_open()
        try:
            found: R = await self._reader.send(DatabaseCall(work, loop=asyncio.get_running_loop()))
            return found
        except FileReplaced:
            return await self.write(work)
        except _DRIVER_ERRORS as error:
            raise self._explain(error) from error

    def enqueue_now(self, work: Callable[[Tx], list[Enqueued]], connection: Any) -> list[Enqueued]:
        """Run ``work`` in the calling thread: in a transaction of the writer, or in that of a caller's connection."""
        self._check_open()
        self.reserve.check()
        try:
            if connection is not None:
                return run_in_caller_transaction(connection, self.path, partial(self._run_in_cursor, work))
            done: list[Enqueued] = self.writer.do(work, adds_jobs=True)
            return done
        except _DRIVER_ERRORS as error:
            raise self._explain(error, adds_jobs=True) from error

    def _run_in_cursor(self, work: Callable[[Tx], R], cursor: sqlite3.Cursor) -> R:
        check_version(cursor, self._namespace, self.url)
        if self._folder is not None and os.path.isdir(self._folder):
            self._wall_clock.share(os.path.join(self._folder, CLOCK_FILE), begin=False)
        tx = Tx(cursor, self._sql, self._now())
        with tx.savepoint("mainspring"):
            return work(tx)

    def _now(self) -> int:
        """The time of the store: it never goes back, whatever the clock of the machine does. See :mod:`.clock`."""
        self._last = max(self._last, self._clock())
        return self._last

    def translate(self, error: BaseException) -> StoreError | None:
        return translate(error, self.url)

    def _explain(self, error: Exception, *, adds_jobs: bool = False) -> Exception:
        """The error to raise for an error of the driver. An enqueue may wait for the transaction of its own caller."""
        if adds_jobs and is_busy(error):
            return explain_busy(self.write_lock, self.url)
        return self.translate(error) or error

    # ---- life -------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self.write(_do_nothing)

    def _connect(self, until: float) -> sqlite3.Connection:
        """Open a writing connection: check the file, and bring its schema up to date. Waits until ``until``."""
        if self._folder is None:
            return self._open_writer(until)
        while True:
            files.prepare(self.path, self.url)
            inode = files.inode_of(self.path)
            if inode is None:
                continue  # deleted since it was made
            self._identity.remember(inode)
            if make_private(self._folder):
                with self.users.opening(until, inode) as is_first:
                    self._wall_clock.share(os.path.join(self._folder, CLOCK_FILE), begin=is_first)
                    connection = self._open_writer(until)
            else:
                connection = self._open_writer(until)
            if not self._identity.has_changed():
                return connection
            # Replaced meanwhile. Other processes see that this one uses the former file until the connection is closed.
            connection.close()
            self._leave_former_file()

    def _open_writer(self, until: float) -> sqlite3.Connection:
        connection = open_writer(self.path, self._durability, self.url, until)
        try:
            if self._folder is not None and not self._is_checked:
                files.check_content(connection, self.url)
                self.reserve.look()
                self._is_checked = True
            before, _ = migrate(connection, self._sql, self._namespace, self.write_lock, self.url, until)
            self._version_found = before if self._version_found is None else self._version_found
        except BaseException:
            connection.close()
            raise
        return connection

    def _leave_former_file(self) -> None:
        """Another file is at the path: close every connection of this process to the former file. A store that is in
        the middle of a call is left alone, and notices it at its next call."""
        if files.may_warn_of_replacement(self.path):
            log.warning(
                "the file of the store %s was deleted or replaced; this process goes on with the file that is there "
                "now. Jobs of the former file that are not in it are lost.",
                self.url,
            )
        for database in fork.stores_of(self.path):
            database.leave_file(is_own=database is self)

    def leave_file(self, *, is_own: bool) -> None:
        """Close the connections. With ``is_own``, the writer calls this and closes its connection itself."""
        reader_left = self._reader is None or self._reader.drop(LEAVE_SECONDS)
        if (is_own or self.writer.drop(LEAVE_SECONDS)) and reader_left:
            self.users.leave()
            self._wall_clock.leave()

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._wakeups.close_listeners()
            await asyncio.to_thread(self._close_connections)

    def _close_connections(self) -> None:
        self.writer.close()  # its last commits wake other processes
        self._wakeups.close()
        if self._reader is not None:
            self._reader.close()
        self.users.leave()
        self._wall_clock.leave()
        self.write_lock.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store was closed", url=self.url, hint="Make a new store and open it.")

    async def migrate(self) -> tuple[int, int]:
        """Opening migrates. The first call returns the number that opening found, if this store opened the file."""
        _, after = await self.write(
            lambda tx: migrate(tx.cursor.connection, self._sql, self._namespace, self.write_lock, self.url)
        )
        before, self._version_found = self._version_found, after
        return after if before is None else before, after

    def migration_plan(self) -> MigrationPlan:
        return plan_migration(None if self.path == MEMORY else self.path, self._namespace)

    async def durability(self) -> str:
        level = await self.write(lambda tx: tx.cursor.execute("pragma synchronous").fetchall()[0][0])
        return "sqlite:" + ("full" if self._log_sync.is_active else _SYNCHRONOUS[level])

    # ---- wake-ups -----------------------------------------------------------------------------------

    def notify(self, queues: Iterable[str]) -> None:
        self._check_open()
        self._wakeups.wake(set(queues))

    def listen(self, worker: str, queues: Iterable[str]) -> SqliteListener:
        self._check_open()
        return self._wakeups.listen(worker, queues)

    # ---- fork (see fork.py) -------------------------------------------------------------------------

    def connections(self) -> list[SqliteWriter | SqliteReader]:
        return [self.writer] if self._reader is None else [self.writer, self._reader]

    def leave_before_fork(self) -> None:
        self.users.leave()
        self._wall_clock.leave()

    def close_files_after_fork(self) -> None:
        self.users.forget()
        self.write_lock.close()
        self._log_sync.detach()
        self._wakeups.close_after_fork()


def _do_nothing(_: Tx) -> None:
    """Connecting is all that ``open`` needs."""


class DatabaseCall:
    """A function that the thread with the connection runs, and the way its answer gets back to the caller.

    ``work`` runs inside a transaction, perhaps more than once until one commits: it must have no other effects.
    """

    __slots__ = ("adds_jobs", "done", "error", "event", "future", "given_up", "loop", "until", "value", "woken", "work")

    def __init__(
        self,
        work: Callable[[Tx], Any],
        *,
        adds_jobs: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.work = work
        self.adds_jobs = adds_jobs
        """Refused when the disk is full. Other calls go on: the disk reserve is released for them."""
        self.loop = loop
        self.future: asyncio.Future[Any] | None = loop.create_future() if loop is not None else None
        self.value: Any = None
        self.error: BaseException | None = None
        self.woken = _NO_QUEUES
        self.done = False
        self.event: job_threads.Latch | None = None
        """Set at the end, for a blocking caller whose work another thread runs."""
        self.until = blocking_deadline.until if loop is None else math.inf
        """The monotonic time at which a blocking caller must have its answer."""
        self.given_up = False
        """A blocking caller has not got its answer in time."""

    @property
    def abandoned(self) -> bool:
        """Whether the caller was cancelled, or gave up, and waits no more."""
        return self.given_up or (self.future is not None and self.future.cancelled())

    def run(self, tx: Tx) -> None:
        self.error = None
        self.value = self.work(tx)
        self.woken = tx.woken

    def fail(self, error: BaseException) -> None:
        self.value, self.error = None, error
        self.woken = _NO_QUEUES

    def settle(self) -> None:
        """Wake the caller."""
        self.done = True
        if self.event is not None:
            self.event.set()
        if self.loop is not None:
            with suppress(RuntimeError):  # the loop was closed: the caller is gone
                self.loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        assert self.future is not None
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.value)

    def result(self) -> Any:
        """The answer for a blocking caller, after the call was settled."""
        if self.error is not None:
            raise self.error
        return self.value


def _explain_failed_sync(error: OSError) -> StoreUnavailable:
    return StoreUnavailable(
        f"the write-ahead log of the SQLite file could not be synced: {error.strerror}", hint="Check the disk."
    )


def _end_of_wait(group: list[DatabaseCall]) -> float:
    """The monotonic time until which the calls wait for the write lock: a caller may set a shorter time."""
    longest = time.monotonic() + PATIENCE
    return min(longest, max([call.until for call in group]))


class SqliteWriter:
    """Runs calls in transactions of the writing connection; see the head of this file."""

    def __init__(
        self,
        connect: Callable[[float], sqlite3.Connection],
        *,
        sql: SqliteStatements,
        now: Callable[[], int],
        lock: WriteLock,
        log_sync: LogSync,
        reserve: DiskReserve,
        wake: Callable[[set[str]], None],
        identity: FileIdentity,
        in_memory: bool,
        replaced: Callable[[], None],
    ) -> None:
        self._connect = connect
        self._sql = sql
        self._now = now
        self._write_lock = lock
        self._log_sync = log_sync
        self._reserve = reserve
        self._wake = wake
        self._identity = identity
        self._in_memory = in_memory
        self._replaced = replaced
        self._pending: deque[DatabaseCall] = deque()
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._forking = False
        self._committing = False
        self._seqs = SeqBlock()
        self._server = 0
        """The thread that took the lock last. A thread writes this at once after it took the lock: only a thread that
        finds its own number here and the lock taken is about to wait for itself."""
        self._cursor: sqlite3.Cursor | None = None
        self._signals: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None

    # ---- submit ------------------------------------------------------------------------------

    def do(self, work: Callable[[Tx], Any], *, adds_jobs: bool = False) -> Any:
        """Run ``work`` in a transaction and wait for its commit, in the calling thread."""
        call = DatabaseCall(work, adds_jobs=adds_jobs)
        me = get_ident()
        if self._server == me and self._lock.locked():
            raise WouldDeadlock  # a signal handler or a finaliser interrupted this thread inside a commit
        if self._thread is not None or job_threads.here():
            self._leave_to_thread(call)
        elif not self._pending and not self._lock.locked():  # the common case: no other caller
            with self._lock:
                self._server = me
                self._serve_group([call], call)
        else:
            self._pending.append(call)
            serve = self._serve_only if me == threading.main_thread().ident else self._serve
            while not call.done:
                with self._lock:  # the thread before may have served this call too
                    self._server = me
                    if not call.done:
                        serve(call)
        return call.result()

    def _leave_to_thread(self, call: DatabaseCall) -> None:
        """Let the writer's thread run the call: an exception that is thrown into the body of a job must not hit the
        calls of others."""
        call.event = job_threads.Latch()
        self._pending.append(call)
        self._start_thread()
        self._signals.put(True)
        if not call.event.wait(None if call.until == math.inf else max(0.0, call.until - time.monotonic())):
            call.given_up = True
            if not call.done:
                raise StoreUnavailable(
                    "the SQLite file did not take the jobs in time",
                    hint="Another process may hold its write lock, or the disk may be slow.",
                )

    def send(self, work: Callable[[Tx], Any], *, adds_jobs: bool = False) -> asyncio.Future[Any]:
        """Run ``work`` in a transaction; the future is awaited on the running loop."""
        call = DatabaseCall(work, adds_jobs=adds_jobs, loop=asyncio.get_running_loop())
        assert call.future is not None
        self._pending.append(call)
        self._start_thread()
        self._signals.put(True)
        return call.future

    def _start_thread(self) -> None:
        if self._thread is not None:
            return
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mainspring-sqlite-writer", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        signals, me = self._signals, get_ident()
        while signals.get():
            if self._pending:
                with self._lock:
                    self._server = me
                    self._serve(None)

    # ---- commit, the lock held ----------------------------------------------------------------

    def _serve(self, own: DatabaseCall | None) -> None:
        """Run pending calls until the caller's own call is done, or until none is left."""
        while self._pending and (own is None or not own.done):
            group: list[DatabaseCall] = []
            self._committing = False
            try:
                while self._pending and len(group) < LARGEST_GROUP:
                    call = self._pending[0]
                    if not call.abandoned:
                        group.append(call)
                    self._pending.popleft()  # after the append: an exception between the two loses no call
                if group:
                    self._serve_group(group, own)
            except BaseException:
                self._spare_others(group, own)
                raise

    def _serve_only(self, own: DatabaseCall) -> None:
        """Run the caller's call alone: in the main thread a signal handler may raise at any moment, which must not hit
        the calls of others."""
        self._pending.remove(own)
        self._serve_group([own], own)

    def _serve_group(self, group: list[DatabaseCall], own: DatabaseCall | None) -> None:
        began = time.perf_counter()
        self._committing = False
        try:
            self._run_group(group)
            committed = time.perf_counter()
            woken = group[0].woken if len(group) == 1 else set[str]().union(*(call.woken for call in group))
            if woken:
                self._wake(woken)
            self._sync_log(group)
            for call in group:
                call.settle()
        except BaseException:  # thrown into this thread: the calls of others must not fail with it
            self._spare_others(group, own)
            raise
        self._write_lock.let_others_pass(began, committed)

    def _run_group(self, group: list[DatabaseCall]) -> None:
        """Run all calls in one transaction or, if that fails as a whole, each in its own. Errors go to their calls."""
        try:
            self._commit(group)
        except Exception as error:  # noqa: BLE001  # the error goes to the caller
            # Another writer holds the lock, or the disk fails: alone, each call would wait again.
            same = len(group) == 1 or is_busy(error) or self._log_sync.has_failed
            for call in group:
                self._alone(call, error if same else None)

    def _sync_log(self, group: list[DatabaseCall]) -> None:
        """Bring the commit to the disk. If that fails, it may be there or not: the calls are not run again."""
        try:
            self._log_sync.sync()
        except OSError as error:
            failed = _explain_failed_sync(error)
            for call in group:
                if call.error is None:
                    call.fail(failed)

    def _spare_others(self, group: list[DatabaseCall], own: DatabaseCall | None) -> None:
        """An exception hit this thread in the middle: the calls of others were committed, and are answered; or they
        were not, and are pending again."""
        others = [call for call in group if call is not own and not call.done and call not in self._pending]
        if self._committing and self._cursor is not None and not self._cursor.connection.in_transaction:
            self._sync_log(others)
            for call in others:
                call.settle()
            return
        self._roll_back()
        self._pending.extendleft(reversed(others))
        self._signals.put(True)

    def _alone(self, call: DatabaseCall, error: Exception | None) -> None:
        """Run one call in a transaction of its own, after its group failed as a whole."""
        try:
            if error is not None:
                raise error
            self._commit([call])
        except Exception as failed:  # noqa: BLE001  # the same
            if not is_full(failed) or call.adds_jobs or not self._reserve.release():
                call.fail(failed)
                return
            try:
                self._commit([call])
            except Exception as again:  # noqa: BLE001  # the same
                call.fail(again)

    def _commit(self, group: list[DatabaseCall]) -> None:
        if self._identity.has_changed():
            self._disconnect()
            self._replaced()
        until = _end_of_wait(group)
        cursor = self._cursor or self._open(until)
        self._committing = False
        if cursor.connection.in_transaction:  # a signal interrupted the end of an earlier one
            self._roll_back()
        try:
            if begin(cursor, self._write_lock, until, may_give_up=all(call.adds_jobs for call in group)):
                group[:] = [call for call in group if not call.abandoned]
            self._write_log_again()
            now = self._now()
            if len(group) == 1:
                group[0].run(Tx(cursor, self._sql, now, self._seqs))
            else:
                for call in group:
                    self._run_guarded(cursor, call, now)
            self._committing = True
            cursor.execute("commit")
        except BaseException:
            self._roll_back()
            raise

    def _write_log_again(self) -> None:
        """After a failed sync: bring the earlier commits to the disk, before another one follows them."""
        try:
            self._log_sync.write_again()
        except OSError as error:
            raise _explain_failed_sync(error) from error

    def _run_guarded(self, cursor: sqlite3.Cursor, call: DatabaseCall, now: int) -> None:
        """Run one call of a group: if it fails, only its own changes are undone."""
        cursor.execute("savepoint one")
        try:
            call.run(Tx(cursor, self._sql, now, self._seqs))
        except Exception as error:
            if is_full(error) or not cursor.connection.in_transaction:
                raise
            cursor.execute("rollback to one")
            self._seqs.forget()
            call.fail(error)
        cursor.execute("release one")

    def _roll_back(self) -> None:
        self._seqs.forget()
        if self._cursor is not None and self._cursor.connection.in_transaction:
            self._cursor.execute("rollback")

    @property
    def is_open(self) -> bool:
        return self._cursor is not None

    # ---- life ---------------------------------------------------------------------------------

    def _open(self, until: float) -> sqlite3.Cursor:
        self._cursor = self._connect(until).cursor()
        self._log_sync.attach(self._cursor.connection)
        self._seqs.forget()
        return self._cursor

    def close(self) -> None:
        """Run the pending calls, then close the connection."""
        if self._thread is not None:
            self._signals.put(False)
            self._thread.join()
            self._thread = None
        me = get_ident()
        with self._lock:
            self._server = me
            self._serve(None)
            self._disconnect()

    def drop(self, patience: float) -> bool:
        """Close the connection; the next call opens another. False if a call takes longer than ``patience`` seconds."""
        if self._server == get_ident() and self._lock.locked():
            return False
        if not self._lock.acquire(timeout=patience):
            return False
        try:
            self._disconnect()
        finally:
            self._lock.release()
        return True

    def peek(self, statement: str) -> int:
        """The number that a statement returns, for a database in memory that is not used any more. Any thread, also
        inside a finaliser: 0 if a call is in the middle of a commit."""
        if self._cursor is None or (self._server == get_ident() and self._lock.locked()):
            return 0
        if not self._lock.acquire(timeout=1.0):
            return 0
        try:
            return int(self._cursor.execute(self._sql[statement]).fetchall()[0][0])
        finally:
            self._lock.release()

    def end_thread(self) -> None:
        """Let the thread end after the pending calls, without waiting for it."""
        self._signals.put(False)

    def _disconnect(self) -> None:
        if self._cursor is not None:
            connection, self._cursor = self._cursor.connection, None
            self._log_sync.detach()
            connection.close()

    def before_fork(self, patience: float) -> None:
        """Close the connection, so that the child inherits no handle of the file; the next call opens it again."""
        me = get_ident()
        self._forking = self._lock.acquire(timeout=patience)
        if self._forking:
            self._server = me
            if not self._in_memory:
                self._disconnect()

    def after_fork_in_parent(self) -> None:
        if self._forking:
            self._lock.release()

    def after_fork_in_child(self) -> sqlite3.Cursor | None:
        """Start anew. Returns the cursor that could not be closed before the fork: keep it and never close it."""
        inherited = self._cursor
        if not self._in_memory:  # a copy of a database in memory is the child's own
            self._cursor = None
        self._pending = deque()
        self._lock = threading.Lock()
        self._server = 0
        self._starting = threading.Lock()
        self._signals = SimpleQueue()
        self._thread = None
        return inherited
