"""The parent of workers. It imports no user code, so nothing that a job does can stop it.

It starts the workers, beats for those that live and move, looks at each a few times a second
(``judge.py`` has the rules), sees the dead ones to their end and gives their jobs back, and starts
successors with backoff. What it knows of the store it learns from the workers themselves.

A dead worker goes this way: kill its group and every descendant, wait until all are gone,
``retire`` it with the acks of those known to be guilty, let go of its death lock. Only then can
its jobs run anywhere else, so no job ever has two bodies.
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
from mainspring.worker.events import failure_log, names
from mainspring.worker.events.names import MovedJob
from mainspring.worker.lease import death_lock
from mainspring.worker.lease.shared_state import Phase
from mainspring.worker.lease.supervisor_heartbeats import SupervisorHeartbeats
from mainspring.worker.supervise import blame, process_tree, signals
from mainspring.worker.supervise.child import Child
from mainspring.worker.supervise.child_pipe import DRAIN, STOP
from mainspring.worker.supervise.kill_rules import KillCause, KillDecision, judge
from mainspring.worker.supervise.restart_policy import RestartPolicy
from mainspring.worker.supervise.signals import Exit

log = logging.getLogger("mainspring.supervisor")

LOOK = 0.25
"""Seconds between two looks at the workers while they have jobs."""
IDLE_LOOK = 0.5
_UNKNOWN = 5.0  # seconds to end for workers that have not said their own limits
_UNTOLD = 10_000  # jobs of dead workers that hooks have not heard of
_AT_ONCE = 200  # of them in one message
_LAST = 5.0  # seconds to give back the jobs of workers that had to be killed at the very end


class Supervisor:
    """Runs ``processes`` copies of ``command`` (a ``mainspring.launch.child`` line) until it is told to stop.

    :meth:`run` blocks, owns the signals of this process and belongs into its main thread: the kernel
    ties the workers' lives to the thread that started them.
    """

    def __init__(self, command: Sequence[str], processes: int = 1, *, env: Mapping[str, str] | None = None) -> None:
        self.wards: list[Child] = []
        self._command = list(command)
        self._env = dict(os.environ if env is None else env)
        self._seats = RestartPolicy(processes)
        self._heart = SupervisorHeartbeats(lambda: self.wards)
        self._endings: set[asyncio.Task[None]] = set()
        self._ending: set[int] = set()
        self._stops = signals.Stops(self._drain, self._stop)
        self._untold: list[MovedJob] = []
        self._kill_at = float("inf")
        self._exit = Exit.CLEAN

    # ---- use --------------------------------------------------------------------------------

    def run(self) -> int:
        """Until all workers have ended for good; returns the exit code."""
        return asyncio.run(self._main())

    # ---- the loop ---------------------------------------------------------------------------

    async def _main(self) -> int:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        if not process_tree.become_subreaper():
            log.info("no sub-reaper on %s: orphans of a dead worker are found by their mark alone", sys.platform)
        with contextlib.suppress(OSError, UseError):  # said when the first worker is started
            death_lock.sweep()
        with signals.owned(self._stops), self._quit_forwarded():
            try:
                await self._watch()
            finally:
                await self._end()
        return int(self._exit)

    async def _watch(self) -> None:
        while True:
            self._start_missing()
            for ward in list(self.wards):
                self._look_at(ward)
            self._tell()
            process_tree.reap_orphans(self._pids())
            if not self.wards and self._may_leave():
                return
            alarm = self._loop.call_later(self._nap(), self._news.set)
            await self._news.wait()
            alarm.cancel()
            self._news.clear()

    def _may_leave(self) -> bool:
        """Every job is given back, or cannot be while the store is away: then the leases decide."""
        if self._stops.count:
            return not self._endings or boottime() > self._kill_at
        return not self._endings and self._seats.settled

    def _nap(self) -> float:
        """Seconds until there is something to do, unless news come first: the end of a worker is such news."""
        busy = self._stops.count or self._endings or any(ward.busy for ward in self.wards)
        return min(LOOK if busy else IDLE_LOOK, max(0.0, self._seats.next_due() - boottime()))

    def _start_missing(self) -> None:
        if self._stops.count:
            return
        for seat in self._seats.due(boottime(), {ward.seat for ward in self.wards if not ward.leaving}):
            try:
                ward = Child(self._command, seat, self._env)
            except (OSError, UseError) as error:
                self._failed(seat, f"no process could be started: {error}")
                continue
            self.wards.append(ward)
            self._loop.add_reader(ward.link, self._heard, ward)

    def _heard(self, ward: Child) -> None:
        ward.read()
        if ward.link.closed:
            self._loop.remove_reader(ward.link)
        if ward.hello is not None:
            self._heart.serve(ward.hello)
        self._news.set()

    def _look_at(self, ward: Child) -> None:
        if ward.exit_code is not None:
            self._begin_end(ward)
            return
        look = ward.look(self._heart.beating_since(ward.hello))
        if ward.ready:
            self._seats.started(ward.seat)
        if look is not None and (sentence := judge(look)):
            ward.kill(sentence)
        elif boottime() > self._kill_at:
            ward.kill(KillDecision(KillCause.LINGERING))
        if ward.board.phase == Phase.REPLACE and not ward.leaving:
            log.warning("worker with pid %d holds a body that will not end: starting its successor", ward.pid)
            ward.leaving = True

    def _tell(self) -> None:
        """Hand what became of dead workers' jobs to a worker that has hooks, as soon as there is one."""
        if self._untold and (ward := next((ward for ward in self.wards if ward.listens), None)) is not None:
            for start in range(0, len(self._untold), _AT_ONCE):
                ward.link.tell(self._untold[start : start + _AT_ONCE])
            self._untold.clear()

    # ---- the end of one worker --------------------------------------------------------------

    def _begin_end(self, ward: Child) -> None:
        self.wards.remove(ward)
        self._ending.add(ward.pid)
        self._heard(ward)
        self._loop.remove_reader(ward.link)
        task = asyncio.create_task(self._see_to_its_end(ward))
        self._endings.add(task)
        task.add_done_callback(self._ended)
        if not ward.leaving:
            self._vacate(ward)
        self._note_exit(ward)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._endings.discard(task)
        self._news.set()
        if not task.cancelled() and (error := task.exception()):
            log.error("giving back a dead worker's jobs failed; its lease decides now", exc_info=error)

    async def _see_to_its_end(self, ward: Child) -> None:
        jobs = await ward.wait_gone(self._pids)
        if ward.hello is not None:
            worker, code = ward.hello.worker, ward.hello.code
            cause, acks = blame.verdict(ward.sentence, jobs, boottime(), orderly=ward.orderly, worker=worker, code=code)
            given = await self._heart.retire(ward.hello, cause, acks)
            if given.taken:
                failure_log.dead_with_worker(worker, _told(ward), given.dead, acks)
            if given.taken and ward.hello.hooks:
                self._untold += names.of_acks(ward.hello.worker, acks) + names.of_rescue(ward.hello.worker, given)
                del self._untold[_UNTOLD:]
            if given.taken and (cause is Outcome.CRASHED or ward.sentence):
                log.warning(
                    "worker %s ended (%s): %d jobs ready again, %d later, %d dead",
                    ward.hello.worker, _told(ward), len(given.ready), len(given.retrying), len(given.dead),
                )  # fmt: skip
        self._ending.discard(ward.pid)
        ward.release()

    def _pids(self) -> frozenset[int]:
        """The workers of this supervisor, also those that are being seen to their end."""
        return frozenset(self._ending | {ward.pid for ward in self.wards})

    def _vacate(self, ward: Child) -> None:
        """Decide whether and when the seat is filled again."""
        code = ward.exit_code
        if ward.cannot_start or (ward.hello is None and not self._stops.count):
            self._failed(ward.seat, ward.cannot_start or f"the worker process {_told(ward)}")
        elif code == 0 and ward.orderly and ward.hello is not None and ward.hello.until_empty:
            self._seats.finished(ward.seat)
        else:
            self._seats.left(ward.seat, orderly=ward.sentence is not None or ward.orderly)

    def _failed(self, seat: int, why: str) -> None:
        if text := self._seats.failed(seat, why):
            sys.stderr.write(text)
        if self._seats.hopeless:
            self._exit = Exit.FAILED
            self._stops()

    def _note_exit(self, ward: Child) -> None:
        """The supervisor's exit code is the worst that happened while it stopped."""
        code = ward.exit_code or 0
        if self._stops.count and self._exit is not Exit.FAILED:
            self._exit = max(self._exit, Exit(code) if ward.orderly else Exit.KILLED)

    # ---- stopping ---------------------------------------------------------------------------

    def _drain(self) -> None:
        hellos = [ward.hello for ward in self.wards if ward.hello]
        self._order(DRAIN, max(((hello.drain + 2 * hello.grace) / 1e6 for hello in hellos), default=_UNKNOWN))

    def _stop(self) -> None:
        hellos = [ward.hello for ward in self.wards if ward.hello]
        self._order(STOP, max((2 * hello.grace / 1e6 for hello in hellos), default=_UNKNOWN))

    def _order(self, order: bytes, limit: float) -> None:
        """Tell every worker; what is left after ``limit`` seconds is killed."""
        self._kill_at = min(self._kill_at, boottime() + limit)
        for ward in self.wards:
            ward.order(order)
        self._news.set()

    async def _end(self) -> None:
        """Nothing may stay behind, also when an error of our own ended the loop."""
        for ward in list(self.wards):
            ward.kill(KillDecision(KillCause.LINGERING))
            self._begin_end(ward)
        if self._endings:
            await asyncio.wait(self._endings, timeout=_LAST)
        await self._heart.close()

    @contextlib.contextmanager
    def _quit_forwarded(self) -> Iterator[None]:
        """SIGQUIT goes on to the workers, which show their stacks."""
        self._loop.add_signal_handler(signal.SIGQUIT, self._forward_quit)
        try:
            yield
        finally:
            self._loop.remove_signal_handler(signal.SIGQUIT)

    def _forward_quit(self) -> None:
        for ward in self.wards:
            if ward.hello is not None:  # before that the signal would end it
                ward.signal(signal.SIGQUIT)


def _told(ward: Child) -> str:
    code = ward.exit_code or 0
    if ward.sentence:
        return f"killed: {ward.sentence.cause.value}"
    return f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
