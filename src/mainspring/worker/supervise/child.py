"""One worker process as its supervisor sees it: start it, take snapshots of it, kill it, wait for its end.

The first workers are started before this process imports asyncio (:func:`start_early`), so this module imports it only
where it waits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from mainspring.common.clock import boottime
from mainspring.errors import UseError
from mainspring.worker import process_tree
from mainspring.worker.lease.death_lock import DeathLock
from mainspring.worker.lease.shared_state import Phase, RunningBody, SharedState
from mainspring.worker.supervise.child_pipe import (
    Bye,
    CannotStart,
    ChildEnvironment,
    Hello,
    Message,
    StuckBody,
    SupervisorPipe,
    create_pipe,
)
from mainspring.worker.supervise.kill_rules import MAX_GAP, ChildSnapshot, KillDecision
from mainspring.worker.supervise.signals import Exit

log = logging.getLogger("mainspring.supervisor")

_ORDERLY = (Exit.CLEAN, Exit.HANDED_BACK, Exit.STOPPED, Exit.LEFT)
_PATIENCE = 5.0  # seconds after which processes that do not die are logged


class Child:
    """A started worker process. ``number`` is its position among the supervisor's processes."""

    def __init__(self, command: Sequence[str], number: int, env: Mapping[str, str]) -> None:
        self.number = number
        self.mark = secrets.token_hex(8)
        self.shared_state = SharedState.create()
        self.lock = DeathLock.create()
        ours, theirs = create_pipe()
        inherited = ChildEnvironment.of(theirs, self.shared_state, self.lock)
        self.pipe = SupervisorPipe(ours)
        try:
            # In the caller's thread on purpose: the kernel's signal at a parent's death follows the thread.
            self._popen = subprocess.Popen(
                command,
                env={**env, process_tree.MARK: self.mark, **inherited.as_variables()},
                pass_fds=inherited.descriptors,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
            )
        except OSError:
            self.release()
            raise
        finally:
            theirs.close()
        self.started = boottime()
        self.hello: Hello | None = None
        self.cannot_start = ""
        self._said_bye = False
        self.places: dict[tuple[bytes, int], str] = {}
        """The places of bodies that do not end, by job and token."""
        self.leaving = False
        """Its replacement may be started."""
        self.kill_decision: KillDecision | None = None
        """Why the supervisor killed it, if it did."""
        self._moving_since = self._ticking_since = self._phase_since = self.started
        self._phase: int = Phase.STARTING
        self._checked_at = self.started
        self._watched_since = self.started
        self._stopped = False
        self.busy = True
        """Whether the last snapshot showed running jobs; True before the first snapshot."""

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal, as in ``subprocess``."""
        return self._popen.poll()

    @property
    def orderly(self) -> bool:
        """Whether it ended by itself and announced its end. The exit code alone proves nothing: a job can end its
        process with any exit code."""
        return self._said_bye and self.exit_code in _ORDERLY

    @property
    def ready(self) -> bool:
        """Whether it is registered."""
        return self.hello is not None and self.shared_state.lease_end > 0

    def read_messages(self) -> None:
        """Read the messages of the worker."""
        for message in self.pipe.read():
            self._handle(message)

    def _handle(self, message: Message) -> None:
        if isinstance(message, Hello):
            self.hello = message
        elif isinstance(message, CannotStart):
            self.cannot_start = message.text
        elif isinstance(message, StuckBody):
            self.places[bytes.fromhex(message.job), message.token] = message.place
        elif isinstance(message, Bye):
            self._said_bye = True

    def is_moving(self) -> bool:
        """Whether the kernel shows the process as alive and not stopped."""
        stat = process_tree.read_stat(self.pid)
        return stat is not None and not stat.stopped and not stat.gone

    # ---- snapshots --------------------------------------------------------------------------

    def take_snapshot(self, heartbeats_since: float) -> ChildSnapshot | None:
        """What the kill rules need; None before the worker has introduced itself."""
        now, state, hello = boottime(), self.shared_state, self.hello
        self.pipe.flush()
        stat = process_tree.read_stat(self.pid)
        self._track_changes(now, stopped=stat is not None and stat.stopped)
        if hello is None:
            return None
        jobs = state.jobs()
        self.busy = bool(jobs)
        return ChildSnapshot(
            now, self._stopped, self._watched_since, self._moving_since, self._ticking_since, heartbeats_since,
            self._phase, self._phase_since, state.ticked, state.tried, state.blocker, state.lease_end,
            jobs,
            hello.lease / 1e6, hello.grace / 1e6, hello.drain / 1e6,
        )  # fmt: skip

    def _track_changes(self, now: float, *, stopped: bool) -> None:
        """Update the moments since when the process is watched, moves, ticks and is in its phase."""
        if now - self._checked_at > MAX_GAP:  # the supervisor itself was stopped
            self._watched_since = self._moving_since = now
        if stopped or self._stopped:
            self._moving_since = now
        if now - self.shared_state.ticked > MAX_GAP:
            self._ticking_since = now
        if self.shared_state.phase != self._phase:
            self._phase, self._phase_since = self.shared_state.phase, now
        self._checked_at, self._stopped = now, stopped

    # ---- the end ----------------------------------------------------------------------------

    @property
    def takes_moved_jobs(self) -> bool:
        """Whether it can call hooks about the jobs of other workers."""
        return self.ready and not self.leaving and self.hello is not None and self.hello.hooks

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker process."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self, decision: KillDecision) -> None:
        """Send SIGKILL to the worker and all its descendants. ``decision`` decides about its jobs."""
        if self.kill_decision is None:
            self.kill_decision = decision
            name = self.hello.worker if self.hello else "(not registered)"
            log.error("killing worker %s (pid %d): %s", name, self.pid, decision.cause.value)
        process_tree.kill_family(self.pid, self.mark)

    async def wait_gone(self, siblings: Callable[[], frozenset[int]]) -> list[RunningBody]:
        """Kill the worker's descendants until none is left. Returns the running bodies in the shared state.

        ``siblings`` are the other workers: their exits must not be taken for those of orphans.
        """
        import asyncio

        began = boottime()
        logged = False
        while (alive := process_tree.kill_family(self.pid, self.mark)) or self._popen.poll() is None:
            if not logged and boottime() - began > _PATIENCE:
                log.warning(
                    "processes %s of a dead worker do not die; its jobs must wait for that", alive or [self.pid]
                )
                logged = True
            await asyncio.sleep(0.01 if boottime() - began < 1 else 0.25)
            process_tree.reap_orphans(siblings())
        return self.shared_state.jobs()

    def release(self) -> None:
        """The jobs were given back: the proof of death is not needed any more."""
        self.lock.close(unlink=True)
        self.pipe.close()
        self.shared_state.close()


def start_early(command: Sequence[str], processes: int, env: Mapping[str, str]) -> list[Child]:
    """The first workers, started before there is a supervisor: they import the app while this process imports asyncio,
    which is a sixth of the time of a start. Ends at a worker that cannot be started: the supervisor tries it again, and
    reports it."""
    process_tree.become_subreaper()
    started: list[Child] = []
    with contextlib.suppress(OSError, UseError):
        for number in range(processes):
            started.append(Child(command, number, env))  # noqa: PERF401  # those before an error are kept
    return started
