"""The one writing connection of a process, shared by group commit.

Callers hand in calls. Whoever holds the lock runs all that are pending in one transaction, each
under a savepoint of its own, and settles them after the commit (flat combining): a blocking
caller needs no other thread, and while one commit waits for the disk the next group gathers.
Async callers and bodies of jobs are served by one thread, which starts with the first of them and
from then on serves everybody.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import get_ident
from typing import TYPE_CHECKING, Any

from mainspring.common import job_threads
from mainspring.errors import WouldDeadlock

from .calls import Call
from .errors import is_full
from .gate import begin
from .seqs import Seqs
from .tx import Tx

if TYPE_CHECKING:
    from .gate import Gate
    from .identity import Identity
    from .reserve import Reserve
    from .statements import Statements

LARGEST_GROUP = 64


class Writer:
    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        sql: Statements,
        now: Callable[[], int],
        gate: Gate,
        reserve: Reserve,
        wake: Callable[[set[str]], None],
        identity: Identity,
        in_memory: bool,
    ) -> None:
        self._connect = connect
        self._sql = sql
        self._now = now
        self._gate = gate
        self._reserve = reserve
        self._wake = wake
        self._identity = identity
        self._in_memory = in_memory
        self._pending: deque[Call] = deque()
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._forking = False
        self._committing = False
        self._seqs = Seqs()
        self._server = 0
        """The thread that took the lock last. Whoever takes it writes this at once: another's lock is no deadlock."""
        self._cursor: sqlite3.Cursor | None = None
        self._bell: SimpleQueue[bool] = SimpleQueue()
        self._thread: threading.Thread | None = None

    # ---- hand in ------------------------------------------------------------------------------

    def do(self, work: Callable[[Tx], Any], *, optional: bool = False) -> Any:
        """Run ``work`` in a transaction and wait for its commit, in the calling thread."""
        call = Call(work, optional=optional)
        me = get_ident()
        if self._server == me and self._lock.locked():
            raise WouldDeadlock  # a signal handler or a finaliser came between
        if self._thread is not None or job_threads.here():
            self._leave_to_thread(call)
        elif not self._pending and not self._lock.locked():  # the common case: nobody else is here
            with self._lock:
                self._server = me
                self._serve_group([call], call)
        else:
            self._pending.append(call)
            serve = self._serve_only if me == threading.main_thread().ident else self._serve
            while not call.done:
                with self._lock:  # whoever had it may have served this call too
                    self._server = me
                    if not call.done:
                        serve(call)
        return call.result()

    def _leave_to_thread(self, call: Call) -> None:
        """Let the writer's thread do it: a body may be struck by an exception meant for its job, never for others'."""
        call.bell = threading.Event()
        self._pending.append(call)
        self._start_thread()
        self._bell.put(True)
        call.bell.wait()

    def send(self, work: Callable[[Tx], Any], *, optional: bool = False) -> asyncio.Future[Any]:
        """The same, to be awaited on the running loop."""
        call = Call(work, optional=optional, loop=asyncio.get_running_loop())
        assert call.future is not None
        self._pending.append(call)
        self._start_thread()
        self._bell.put(True)
        return call.future

    def _start_thread(self) -> None:
        if self._thread is not None:
            return
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="mainspring-sqlite-writer", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        bell, me = self._bell, get_ident()
        while bell.get():
            if self._pending:
                with self._lock:
                    self._server = me
                    self._serve(None)

    # ---- commit, the lock held ----------------------------------------------------------------

    def _serve(self, own: Call | None) -> None:
        """Run pending calls, the caller's own among them."""
        while self._pending and (own is None or not own.done):
            group: list[Call] = []
            self._committing = False
            try:
                while self._pending and len(group) < LARGEST_GROUP:
                    call = self._pending[0]
                    if not call.abandoned:
                        group.append(call)
                    self._pending.popleft()  # after it is in the group: thrown out here, it is lost to neither
                if group:
                    self._serve_group(group, own)
            except BaseException:
                self._spare_others(group, own)
                raise

    def _serve_only(self, own: Call) -> None:
        """In the main thread, where a signal handler may raise at any moment: that is the business of no other call."""
        self._pending.remove(own)
        self._serve_group([own], own)

    def _serve_group(self, group: list[Call], own: Call | None) -> None:
        began = time.perf_counter()
        self._committing = False
        try:
            self._run_group(group)
            woken = group[0].woken if len(group) == 1 else set[str]().union(*(call.woken for call in group))
            if woken:
                self._wake(woken)
            for call in group:
                call.settle()
        except BaseException:  # thrown into this thread: the others' work is not its business
            self._spare_others(group, own)
            raise
        self._gate.let_pass(began)

    def _run_group(self, group: list[Call]) -> None:
        """All in one transaction or, when that fails as a whole, each in its own. Errors go to their calls."""
        try:
            self._commit(group)
        except Exception as error:  # noqa: BLE001  # told to whoever handed the call in
            for call in group:
                self._alone(call, error if len(group) == 1 else None)

    def _spare_others(self, group: list[Call], own: Call | None) -> None:
        """Struck in the middle: the others' calls are committed and answered, or not at all and tried again."""
        others = [call for call in group if call is not own and not call.done and call not in self._pending]
        if self._committing and self._cursor is not None and not self._cursor.connection.in_transaction:
            for call in others:
                call.settle()
            return
        self._roll_back()
        self._pending.extendleft(reversed(others))
        self._bell.put(True)

    def _alone(self, call: Call, error: Exception | None) -> None:
        """One call in a transaction of its own, after its group failed as a whole."""
        try:
            if error is not None:
                raise error
            self._commit([call])
        except Exception as failed:  # noqa: BLE001  # the same
            if not is_full(failed) or call.optional or not self._reserve.release():
                call.fail(failed)
                return
            try:
                self._commit([call])
            except Exception as again:  # noqa: BLE001  # the same
                call.fail(again)

    def _commit(self, group: list[Call]) -> None:
        if self._identity.changed():
            self._disconnect()
        cursor = self._cursor or self._open()
        self._committing = False
        if cursor.connection.in_transaction:  # struck by a signal on the way out of an earlier one
            self._roll_back()
        try:
            begin(cursor, self._gate, may_give_up=all(call.optional for call in group))
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

    def _run_guarded(self, cursor: sqlite3.Cursor, call: Call, now: int) -> None:
        """One call of a group: if it fails, it alone is undone."""
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
        self._identity.note()
        return self._cursor

    def close(self) -> None:
        """Finish what is pending, then let the connection go."""
        if self._thread is not None:
            self._bell.put(False)
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
        """Let go of the file, so that the child inherits no handle of it; opened again when next needed."""
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
        """Start anew. Returns what could not be closed before the fork: to be kept, never closed."""
        inherited = self._cursor
        if not self._in_memory:  # a copy of a database in memory is the child's own
            self._cursor = None
        self._pending = deque()
        self._lock = threading.Lock()
        self._server = 0
        self._starting = threading.Lock()
        self._bell = SimpleQueue()
        self._thread = None
        return inherited
