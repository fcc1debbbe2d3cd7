"""The one writing connection of a process, shared by group commit.

Callers hand in calls. The thread that holds the lock runs all pending calls in one transaction, each under a savepoint
of its own, and answers them after the commit (flat combining): a blocking caller needs no other thread, and while one
commit waits for the disk the next group gathers. One thread serves async callers and the bodies of jobs. It starts with
the first such call and serves every call from then on.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import get_ident
from typing import TYPE_CHECKING, Any

from mainspring.common import job_threads
from mainspring.errors import WouldDeadlock

from .errors import is_full
from .transaction import SeqBlock, Tx
from .write_lock import begin

if TYPE_CHECKING:
    from .files import DiskReserve, FileIdentity
    from .statements import SqliteStatements
    from .write_lock import WriteLock

LARGEST_GROUP = 64
"""The most calls in one transaction."""
_NO_QUEUES: set[str] = set()


class DatabaseCall:
    """A function that the thread with the connection runs, and the way its answer gets back to the caller.

    ``work`` runs inside a transaction, perhaps more than once until one commits: it must have no other effects.
    """

    __slots__ = ("adds_jobs", "done", "error", "event", "future", "loop", "value", "woken", "work")

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
        self.event: threading.Event | None = None
        """Set at the end, for a blocking caller whose work another thread runs."""

    @property
    def abandoned(self) -> bool:
        """Whether the caller was cancelled and waits no more."""
        return self.future is not None and self.future.cancelled()

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


class SqliteWriter:
    """Runs calls in transactions of the writing connection; see the head of this file."""

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        sql: SqliteStatements,
        now: Callable[[], int],
        lock: WriteLock,
        reserve: DiskReserve,
        wake: Callable[[set[str]], None],
        identity: FileIdentity,
        in_memory: bool,
    ) -> None:
        self._connect = connect
        self._sql = sql
        self._now = now
        self._write_lock = lock
        self._reserve = reserve
        self._wake = wake
        self._identity = identity
        self._in_memory = in_memory
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

    # ---- hand in ------------------------------------------------------------------------------

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
        call.event = threading.Event()
        self._pending.append(call)
        self._start_thread()
        self._signals.put(True)
        call.event.wait()

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
            woken = group[0].woken if len(group) == 1 else set[str]().union(*(call.woken for call in group))
            if woken:
                self._wake(woken)
            for call in group:
                call.settle()
        except BaseException:  # thrown into this thread: the calls of others must not fail with it
            self._spare_others(group, own)
            raise
        self._write_lock.let_others_pass(began)

    def _run_group(self, group: list[DatabaseCall]) -> None:
        """Run all calls in one transaction or, if that fails as a whole, each in its own. Errors go to their calls."""
        try:
            self._commit(group)
        except Exception as error:  # noqa: BLE001  # the error goes to the caller
            for call in group:
                self._alone(call, error if len(group) == 1 else None)

    def _spare_others(self, group: list[DatabaseCall], own: DatabaseCall | None) -> None:
        """An exception hit this thread in the middle: the calls of others were committed, and are answered; or they
        were not, and are pending again."""
        others = [call for call in group if call is not own and not call.done and call not in self._pending]
        if self._committing and self._cursor is not None and not self._cursor.connection.in_transaction:
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
        cursor = self._cursor or self._open()
        self._committing = False
        if cursor.connection.in_transaction:  # a signal interrupted the end of an earlier one
            self._roll_back()
        try:
            begin(cursor, self._write_lock, may_give_up=all(call.adds_jobs for call in group))
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

    def _open(self) -> sqlite3.Cursor:
        self._cursor = self._connect().cursor()
        self._seqs.forget()
        self._identity.remember()
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

    def _disconnect(self) -> None:
        if self._cursor is not None:
            connection, self._cursor = self._cursor.connection, None
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
