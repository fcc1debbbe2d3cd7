"""Beats for a worker that lives inside another program, from a tiny process beside it.

A web application has no supervisor, and a thread cannot beat while C code holds the GIL. The helper
can: it reads nothing but the board, beats while its host lives and moves, and gives the host's jobs
back when it has seen it dead. It never touches the host's signals, never kills anything, and ends
with its host: it ignores what a service manager sends to the whole group, for the host drains then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys

import msgspec

from mainspring.common.clock import boottime
from mainspring.errors import StoreError
from mainspring.jobs.outcomes import Outcome
from mainspring.worker.lease.death_lock import DeathLock
from mainspring.worker.lease.heartbeat import PASSING, HeartbeatSender
from mainspring.worker.lease.shared_state import SharedState
from mainspring.worker.loop.outage import Outage
from mainspring.worker.loop.retry_log import RetryLog
from mainspring.worker.records import Beat
from mainspring.worker.supervise import process_tree
from mainspring.worker.supervise.blame import begun
from mainspring.worker.supervise.child_pipe import PLACE, Bye, ChildEnvironment, Hello, Message, SupervisorPipe, pair

log = logging.getLogger("mainspring.helper")

_LOOK = 0.5  # seconds between two looks at the host
_LET_GO = 2.0  # seconds after which a host that closed the line without a word is taken to have ended its worker
_TRIES = 60.0  # seconds to give back a dead host's jobs; then the lease has done it


class HeartbeatProcess:
    """The host's side: starts the process, tells it whom to beat for, ends it."""

    def __init__(self, board: SharedState, lock: DeathLock) -> None:
        ours, theirs = pair()
        place = ChildEnvironment(
            link=theirs.fileno(), board=board.fd, lock=lock.fd, lock_path=lock.path, parent=os.getpid()
        )
        with theirs:
            self._popen = subprocess.Popen(
                process_tree.python("-m", "mainspring.worker.lease.heartbeat_process"),
                env={**os.environ, PLACE: msgspec.json.encode(place).decode()},
                pass_fds=(place.link, place.board, place.lock),
                start_new_session=True,
                stdin=subprocess.DEVNULL,
            )
        self._socket = ours

    @property
    def pid(self) -> int:
        return self._popen.pid

    def announce(self, hello: Hello) -> None:
        """Beat for this worker from now on, instead of an earlier one."""
        self._say(hello)

    def stop(self) -> None:
        """The worker is over and has retired: the helper ends without a word to the store."""
        self._say(Bye())
        self._socket.close()
        try:
            self._popen.wait(5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def _say(self, message: Message) -> None:
        with contextlib.suppress(OSError):  # a helper that died is missed by nobody but its beats
            self._socket.sendall(msgspec.json.encode(message) + b"\n")


class _HeartbeatLoop:
    """The helper's side."""

    def __init__(self, place: ChildEnvironment) -> None:
        self._host = place.parent
        self._link = SupervisorPipe(socket.socket(fileno=place.link))
        self._board = SharedState.attach(place.board)
        self._lock = DeathLock(place.lock, place.lock_path)
        self._hello: Hello | None = None
        self._pulse: HeartbeatSender | None = None
        self._outage = Outage(log)
        self._next = 0.0
        self._over = False
        self._silent_since: float | None = None

    @property
    def _host_lives(self) -> bool:
        return os.getppid() == self._host

    async def run(self) -> None:
        loop, news = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._link, news.set)
        while self._host_lives and not self._over:
            self._read()
            if self._link.closed:
                loop.remove_reader(self._link)  # it would be readable for ever
            if self._hello is not None and boottime() >= self._next:
                await self._beat(self._hello)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_LOOK, max(0.01, self._next - boottime())) if self._hello else _LOOK):
                    await news.wait()
            news.clear()
        self._read()
        if self._hello is not None and not self._over and not self._host_lives:
            await self._give_back(self._hello)
        if self._pulse is not None:
            await self._pulse.close()
        loop.remove_reader(self._link)
        self._link.close()

    def _read(self) -> None:
        for message in self._link.read():
            if isinstance(message, Hello):
                self._hello = message
            elif isinstance(message, Bye):
                self._over = True
        if self._link.closed:
            # A dying process closes its files before it is seen dead: only a host that lives on has let us go.
            now = boottime()
            self._silent_since = self._silent_since or now
            self._over = self._over or (self._host_lives and now - self._silent_since > _LET_GO)

    def _pulse_of(self, hello: Hello) -> HeartbeatSender:
        if self._pulse is None:
            self._pulse = HeartbeatSender(hello.store, hello.lease / 1e6, self._outage, who=" of the helper")
        return self._pulse

    async def _beat(self, hello: Hello) -> None:
        pulse = self._pulse_of(hello)
        stat = process_tree.stat_of(self._host)
        self._next = boottime() + pulse.period
        if stat is None or stat.stopped or stat.gone:
            return
        sent = await pulse.send([Beat(hello.worker)])
        if sent is None:
            self._next = boottime() + pulse.retry_in()
        elif sent.replies[0].alive:
            self._board.extend(sent.at + pulse.lease)

    async def _give_back(self, hello: Hello) -> None:
        """The host is dead: its parent id is gone from us, which the kernel does after its last thread ended."""
        pulse, until = self._pulse_of(hello), boottime() + _TRIES
        acks = begun(self._board.jobs(), hello.worker, hello.code)
        trouble = RetryLog("giving back the jobs of a dead host", log, self._outage)
        while boottime() < until:
            try:
                await (await pulse.store()).retire(hello.worker, Outcome.CRASHED, acks)
            except PASSING as error:
                await asyncio.sleep(trouble.failed(error))
            else:
                self._lock.close(unlink=True)
                return


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    place = msgspec.json.decode(os.environ.pop(PLACE), type=ChildEnvironment)
    for fd in (place.link, place.board, place.lock):
        os.set_inheritable(fd, False)
    try:
        asyncio.run(_HeartbeatLoop(place).run())
    except StoreError as error:
        log.error("the helper cannot beat: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
