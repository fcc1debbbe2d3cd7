"""One worker process as its supervisor sees it: started, looked at, and seen to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

import msgspec

from mainspring.common.clock import boottime
from mainspring.worker.lease.death_lock import DeathLock
from mainspring.worker.lease.shared_state import Phase, RunningBody, SharedState
from mainspring.worker.supervise import process_tree
from mainspring.worker.supervise.child_pipe import (
    PLACE,
    Bye,
    CannotStart,
    ChildEnvironment,
    Hello,
    Message,
    SupervisorPipe,
    pair,
)
from mainspring.worker.supervise.kill_rules import ChildSnapshot, KillDecision
from mainspring.worker.supervise.signals import Exit

log = logging.getLogger("mainspring.supervisor")

_TICKING = 2.5  # seconds between ticks that still count as no gap; the worker ticks twice a second
_ORDERLY = (Exit.CLEAN, Exit.HANDED_BACK, Exit.STOPPED)
_PATIENCE = 5.0  # seconds after which a family that will not die is mentioned


class Child:
    """A started worker. ``seat`` is the place among the supervisor's processes that it fills."""

    def __init__(self, command: Sequence[str], seat: int, env: Mapping[str, str]) -> None:
        self.seat = seat
        self.mark = secrets.token_hex(8)
        self.board = SharedState.create()
        self.lock = DeathLock.create()
        ours, theirs = pair()
        place = ChildEnvironment(
            link=theirs.fileno(), board=self.board.fd, lock=self.lock.fd, lock_path=self.lock.path, parent=os.getpid()
        )
        self.link = SupervisorPipe(ours)
        try:
            # In the caller's thread on purpose: the kernel's signal at a parent's death follows the thread.
            self._popen = subprocess.Popen(
                command,
                env={**env, process_tree.MARK: self.mark, PLACE: msgspec.json.encode(place).decode()},
                pass_fds=(place.link, place.board, place.lock),
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
        self.leaving = False
        """Its successor may be started."""
        self.sentence: KillDecision | None = None
        """Why we killed it, if we did."""
        self._moving_since = self._ticking_since = self._phase_since = self.started
        self._phase: int = Phase.STARTING
        self._looked = self.started
        self._looking_since = self.started
        self._stopped = False
        self.busy = True
        """Whether the last look showed running jobs, or there was none yet."""

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it lives; negative for a signal, as subprocess has it."""
        return self._popen.poll()

    @property
    def orderly(self) -> bool:
        """Whether it ended by itself and said so. The exit code alone proves nothing: a job can end its process too."""
        return self._said_bye and self.exit_code in _ORDERLY

    @property
    def ready(self) -> bool:
        return self.hello is not None and self.board.lease_end > 0

    def read(self) -> None:
        """Take what the worker said."""
        for message in self.link.read():
            self._heard(message)

    def _heard(self, message: Message) -> None:
        if isinstance(message, Hello):
            self.hello = message
        elif isinstance(message, CannotStart):
            self.cannot_start = message.text
        elif isinstance(message, Bye):
            self._said_bye = True

    def may_beat(self) -> bool:
        """Whether the worker lives and moves, as the kernel says now."""
        stat = process_tree.stat_of(self.pid)
        return stat is not None and not stat.stopped and not stat.gone

    # ---- looking ----------------------------------------------------------------------------

    def look(self, beating_since: float) -> ChildSnapshot | None:
        """What there is to judge; None before the worker has said who it is."""
        now, board, hello = boottime(), self.board, self.hello
        self.link.flush()
        stat = process_tree.stat_of(self.pid)
        self._note(now, stopped=stat is not None and stat.stopped)
        if hello is None:
            return None
        jobs = board.jobs()
        self.busy = bool(jobs)
        return ChildSnapshot(
            now, self._stopped, self._looking_since, self._moving_since, self._ticking_since, beating_since,
            self._phase, self._phase_since, board.ticked, board.tried, board.lease_end, jobs,
            hello.lease / 1e6, hello.grace / 1e6, hello.drain / 1e6,
        )  # fmt: skip

    def _note(self, now: float, *, stopped: bool) -> None:
        """Keep track of since when things are as they are."""
        if now - self._looked > _TICKING:  # we ourselves were stopped
            self._looking_since = self._moving_since = now
        if stopped or self._stopped:
            self._moving_since = now
        if now - self.board.ticked > _TICKING:
            self._ticking_since = now
        if self.board.phase != self._phase:
            self._phase, self._phase_since = self.board.phase, now
        self._looked, self._stopped = now, stopped

    # ---- the end ----------------------------------------------------------------------------

    def order(self, order: bytes) -> None:
        self.link.order(order)

    @property
    def listens(self) -> bool:
        """Whether it can tell its hooks what became of others' jobs."""
        return self.ready and not self.leaving and self.hello is not None and self.hello.hooks

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self, sentence: KillDecision) -> None:
        """SIGKILL to all of it; its jobs are judged by ``sentence``."""
        if self.sentence is None:
            self.sentence = sentence
            name = self.hello.worker if self.hello else "not registered"
            log.error("killing worker %s (pid %d): %s", name, self.pid, sentence.cause.value)
        process_tree.kill_family(self.pid, self.mark)

    async def wait_gone(self, siblings: Callable[[], frozenset[int]]) -> list[RunningBody]:
        """Kill what is left of the family until nobody is; returns what the board still shows then.

        ``siblings`` are the other workers: their exits are not to be taken for those of orphans.
        """
        began = boottime()
        said = False
        while (there := process_tree.kill_family(self.pid, self.mark)) or self._popen.poll() is None:
            if not said and boottime() - began > _PATIENCE:
                log.warning("processes %s of a dead worker do not die; its jobs wait for that", there or [self.pid])
                said = True
            await asyncio.sleep(0.01 if boottime() - began < 1 else 0.25)
            process_tree.reap_orphans(siblings())
        return self.board.jobs()

    def release(self) -> None:
        """All is settled: the proof of death is not needed any more."""
        self.lock.close(unlink=True)
        self.link.close()
        self.board.close()
