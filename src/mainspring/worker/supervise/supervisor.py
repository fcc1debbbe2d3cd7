"""The parent process of workers. It imports no user code, so no job can stop it.

It starts the workers, sends heartbeats for those that are alive and not stopped, checks each worker a few times a
second (``kill_rules.py`` has the rules), gives back the jobs of dead workers, and starts replacements with backoff. It
learns the address of the store from the workers themselves.

After a worker died, the supervisor kills its process group and every descendant, waits until all of them are gone,
retires the worker with the acks of its guilty jobs (``blame.py``), and releases its death lock. Only then can its jobs
run again, so no job ever runs twice at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence

from mainspring.common.clock import boottime
from mainspring.errors import UseError
from mainspring.jobs.outcomes import Outcome
from mainspring.worker import failure_log, process_tree
from mainspring.worker.events.names import MovedJob, moved_by_acks, moved_by_rescue
from mainspring.worker.lease import death_lock
from mainspring.worker.lease.shared_state import Phase
from mainspring.worker.lease.supervisor_heartbeats import SupervisorHeartbeats
from mainspring.worker.supervise import signals
from mainspring.worker.supervise.blame import decide_blame
from mainspring.worker.supervise.child import Child
from mainspring.worker.supervise.child_pipe import DRAIN, STOP
from mainspring.worker.supervise.kill_rules import KillCause, KillDecision, decide_kill
from mainspring.worker.supervise.restart_policy import RestartPolicy
from mainspring.worker.supervise.signals import Exit

log = logging.getLogger("mainspring.supervisor")

CHECK = 0.25
"""Seconds between two checks of the workers while they have jobs."""
IDLE_CHECK = 0.5
_DEFAULT_LIMIT = 5.0  # seconds to end for workers that have not sent their own limits
_MAX_UNREPORTED = 10_000  # jobs of dead workers that wait for a worker with hooks
_BATCH = 200  # of these jobs in one message
_LAST_LIMIT = 5.0  # seconds to give back the jobs of workers that were killed at the very end


class Supervisor:
    """Runs ``processes`` copies of ``command`` (a ``mainspring.launch.child`` command) until a stop signal comes.

    :meth:`run` blocks, handles the signals of this process, and must be called in its main thread: the kernel ties the
    lives of the workers to the thread that started them.
    """

    def __init__(
        self, command: Sequence[str], processes: int = 1, *, env: Mapping[str, str] | None = None,
        started: Sequence[Child] = (),
    ) -> None:  # fmt: skip
        """``started``: workers that run already, of ``start_early``."""
        self.children = list(started)
        self._command = list(command)
        self._env = dict(os.environ if env is None else env)
        self._restarts = RestartPolicy(processes)
        self._heartbeats = SupervisorHeartbeats(lambda: self.children)
        self._retiring: set[asyncio.Task[None]] = set()
        self._retiring_pids: set[int] = set()
        self._stops = signals.StopCounter(self._drain, self._stop)
        self._unreported: list[MovedJob] = []
        self._kill_at = float("inf")
        self._exit = Exit.CLEAN
        self._left = False

    # ---- use --------------------------------------------------------------------------------

    def run(self) -> int:
        """Run until all workers have ended for good. Returns the exit code."""
        return asyncio.run(self._main())

    # ---- the loop ---------------------------------------------------------------------------

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        if not process_tree.become_subreaper():
            log.info("%s has no sub-reaper: orphans of a dead worker are found only by their mark", sys.platform)
        with contextlib.suppress(OSError, UseError):  # reported when the first worker is started
            death_lock.remove_stale_locks()
        with signals.handle_stop_signals(self._stops), self._forward_quit_signal():
            for child in self.children:
                self._loop.add_reader(child.pipe, self._read_messages, child)
            try:
                await self._watch()
            finally:
                await self._end()
        return int(Exit.LEFT if self._left and self._exit is Exit.CLEAN else self._exit)

    async def _watch(self) -> None:
        while True:
            self._start_missing()
            for child in list(self.children):
                self._check(child)
            self._report_moved_jobs()
            process_tree.reap_orphans(self._pids())
            if not self.children and self._may_end():
                return
            timer = self._loop.call_later(self._pause(), self._changed.set)
            await self._changed.wait()
            timer.cancel()
            self._changed.clear()

    def _may_end(self) -> bool:
        """Every job is given back; or the store is away and the time limit has passed: then the leases decide."""
        if self._stops.count:
            return not self._retiring or boottime() > self._kill_at
        return not self._retiring and self._restarts.all_finished

    def _pause(self) -> float:
        """Seconds until the next check. A change, such as the end of a worker, ends the pause."""
        busy = self._stops.count or self._retiring or any(child.busy for child in self.children)
        return min(CHECK if busy else IDLE_CHECK, max(0.0, self._restarts.next_due() - boottime()))

    def _start_missing(self) -> None:
        if self._stops.count:
            return
        for number in self._restarts.list_due(boottime(), {each.number for each in self.children if not each.leaving}):
            try:
                child = Child(self._command, number, self._env)
            except (OSError, UseError) as error:
                self._handle_failed_start(number, f"no process could be started: {error}")
                continue
            self.children.append(child)
            self._loop.add_reader(child.pipe, self._read_messages, child)

    def _read_messages(self, child: Child) -> None:
        child.read_messages()
        if child.pipe.closed:
            self._loop.remove_reader(child.pipe)
        if child.hello is not None:
            self._heartbeats.add(child.hello)
        self._changed.set()

    def _check(self, child: Child) -> None:
        if child.exit_code is not None:
            self._begin_retiring(child)
            return
        snapshot = child.take_snapshot(self._heartbeats.succeeding_since(child.hello))
        if child.ready:
            self._restarts.record_start(child.number)
        if snapshot is not None and (decision := decide_kill(snapshot)):
            child.kill(decision)
        elif boottime() > self._kill_at:
            child.kill(KillDecision(KillCause.LINGERING))
        if child.shared_state.phase == Phase.REPLACE and not child.leaving:
            log.warning("a job in the worker with pid %d does not end: starting a replacement worker", child.pid)
            child.leaving = True

    def _report_moved_jobs(self) -> None:
        """Send the moved jobs of dead workers to a worker that has hooks, as soon as there is such a worker."""
        child = next((each for each in self.children if each.takes_moved_jobs), None)
        if self._unreported and child is not None:
            for start in range(0, len(self._unreported), _BATCH):
                child.pipe.send_moved_jobs(self._unreported[start : start + _BATCH])
            self._unreported.clear()

    # ---- the end of one worker --------------------------------------------------------------

    def _begin_retiring(self, child: Child) -> None:
        self.children.remove(child)
        self._retiring_pids.add(child.pid)
        self._read_messages(child)
        self._loop.remove_reader(child.pipe)
        task = asyncio.create_task(self._retire(child))
        self._retiring.add(task)
        task.add_done_callback(self._on_retired)
        if not child.leaving:
            self._plan_replacement(child)
        self._update_exit_code(child)

    def _on_retired(self, task: asyncio.Task[None]) -> None:
        self._retiring.discard(task)
        self._changed.set()
        if not task.cancelled() and (error := task.exception()):
            log.error("giving back a dead worker's jobs failed; they run again after its lease", exc_info=error)

    async def _retire(self, child: Child) -> None:
        """Wait until all processes of the worker are gone, then give its jobs back."""
        jobs = await child.wait_gone(self._pids)
        if child.hello is not None:
            worker, code = child.hello.worker, child.hello.code
            cause, acks = decide_blame(
                child.kill_decision,
                jobs,
                boottime(),
                orderly=child.orderly,
                worker=worker,
                code=code,
                places=child.places,
            )
            result, breakers = await self._heartbeats.retire(child.hello, cause, acks)
            if result.taken:
                failure_log.log_dead_with_worker(worker, _describe_end(child), result.dead, acks)
            if result.taken and child.hello.hooks:
                self._unreported += moved_by_acks(worker, acks) + moved_by_rescue(worker, result, breakers)
                del self._unreported[_MAX_UNREPORTED:]
            if result.taken and (cause is Outcome.CRASHED or child.kill_decision):
                log.warning(
                    "worker %s ended (%s): %d of its jobs are ready again, %d retry later, %d are dead",
                    worker, _describe_end(child), len(result.ready), len(result.retrying), len(result.dead),
                )  # fmt: skip
        self._retiring_pids.discard(child.pid)
        child.release()

    def _pids(self) -> frozenset[int]:
        """The workers of this supervisor, also those that are being retired."""
        return frozenset(self._retiring_pids | {child.pid for child in self.children})

    def _plan_replacement(self, child: Child) -> None:
        """Decide whether and when the worker is replaced."""
        code = child.exit_code
        if child.cannot_start or (child.hello is None and not self._stops.count):
            why = child.cannot_start or f"the worker process {_describe_end(child)}"
            self._handle_failed_start(child.number, why)
        elif code in (Exit.CLEAN, Exit.LEFT) and child.orderly and child.hello and child.hello.ends_when_empty:
            self._left = self._left or code == Exit.LEFT
            self._restarts.record_finish(child.number)
        else:
            self._restarts.record_end(child.number, orderly=child.kill_decision is not None or child.orderly)

    def _handle_failed_start(self, number: int, why: str) -> None:
        if text := self._restarts.record_failed_start(number, why):
            sys.stderr.write(text)
        if self._restarts.gives_up:
            self._exit = Exit.FAILED
            self._stops()

    def _update_exit_code(self, child: Child) -> None:
        """The supervisor's exit code is the highest code of a worker that ended while the supervisor stopped."""
        code = child.exit_code or 0
        if self._stops.count and self._exit is not Exit.FAILED:
            ended = Exit(code) if child.orderly else Exit.KILLED
            self._exit = max(self._exit, Exit.CLEAN if ended is Exit.LEFT else ended)

    # ---- stopping ---------------------------------------------------------------------------

    def _drain(self) -> None:
        hellos = [child.hello for child in self.children if child.hello]
        self._order(DRAIN, max(((hello.drain + 2 * hello.grace) / 1e6 for hello in hellos), default=_DEFAULT_LIMIT))

    def _stop(self) -> None:
        hellos = [child.hello for child in self.children if child.hello]
        self._order(STOP, max((2 * hello.grace / 1e6 for hello in hellos), default=_DEFAULT_LIMIT))

    def _order(self, order: bytes, limit: float) -> None:
        """Send an order to every worker. Workers that still run after ``limit`` seconds are killed."""
        self._kill_at = min(self._kill_at, boottime() + limit)
        for child in self.children:
            child.pipe.send_order(order)
        self._changed.set()

    async def _end(self) -> None:
        """Leave no worker behind, also after an unexpected error of the supervisor."""
        for child in list(self.children):
            child.kill(KillDecision(KillCause.LINGERING))
            self._begin_retiring(child)
        if self._retiring:
            await asyncio.wait(self._retiring, timeout=_LAST_LIMIT)
        await self._heartbeats.close()

    @contextlib.contextmanager
    def _forward_quit_signal(self) -> Iterator[None]:
        """Forward SIGQUIT to the workers, which write their stacks."""
        self._loop.add_signal_handler(signal.SIGQUIT, self._forward_quit)
        try:
            yield
        finally:
            self._loop.remove_signal_handler(signal.SIGQUIT)

    def _forward_quit(self) -> None:
        for child in self.children:
            if child.hello is not None:  # before that, the signal would end the worker
                child.signal(signal.SIGQUIT)


def _describe_end(child: Child) -> str:
    code = child.exit_code or 0
    if child.kill_decision:
        return f"killed: {child.kill_decision.cause.value}"
    return f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
