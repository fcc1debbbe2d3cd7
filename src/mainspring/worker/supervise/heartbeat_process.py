"""Heartbeats for a worker inside another program, from a small process beside that program.

A web application has no supervisor, and a thread cannot send heartbeats while C code holds the GIL. This process can.
It reads only the shared state, sends the heartbeats that its host does not send while the host process is alive and not
stopped, and gives the host's jobs back after it has seen the host dead. It never touches the host's signals, never
kills a process, and ends with its host. It ignores the signals that a service manager sends to the whole process group,
because the host drains then.
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

from mainspring.breakers.swap import count_lost_worker
from mainspring.common.clock import boottime
from mainspring.errors import StoreError
from mainspring.jobs.outcomes import Outcome
from mainspring.worker import process_tree
from mainspring.worker.lease.death_lock import DeathLock
from mainspring.worker.lease.heartbeat import TEMPORARY, HeartbeatSender
from mainspring.worker.lease.shared_state import SharedState
from mainspring.worker.records import Beat
from mainspring.worker.retry_log import Outage, RetryLog
from mainspring.worker.supervise.blame import ack_early_jobs_of_crash
from mainspring.worker.supervise.child_pipe import (
    VARIABLE,
    Bye,
    ChildEnvironment,
    Hello,
    Message,
    SupervisorPipe,
    create_pipe,
    encode_message,
)

log = logging.getLogger("mainspring.heartbeats")

_CHECK = 0.5  # seconds between two checks of the host
_SILENCE = 2.0  # seconds after which a live host that closed the connection without a message has ended its worker
_RETIRE_LIMIT = 60.0  # seconds to give back a dead host's jobs; after that its lease has ended anyway


class HeartbeatProcess:
    """The host's side: starts the process, tells it which worker it sends heartbeats for, and ends it."""

    def __init__(self, shared_state: SharedState, lock: DeathLock) -> None:
        ours, theirs = create_pipe()
        inherited = ChildEnvironment.of(theirs, shared_state, lock)
        with theirs:
            self._popen = subprocess.Popen(
                process_tree.python_command("-m", "mainspring.worker.supervise.heartbeat_process"),
                env={**os.environ, **inherited.as_variables()},
                pass_fds=inherited.descriptors,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
            )
        self._socket = ours

    @property
    def pid(self) -> int:
        return self._popen.pid

    def announce(self, hello: Hello) -> None:
        """Send heartbeats for this worker from now on, instead of an earlier one."""
        self._send(hello)

    def stop(self) -> None:
        """The worker has retired: the process ends without a further call to the store."""
        self._send(Bye())
        self._socket.close()
        try:
            self._popen.wait(5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def _send(self, message: Message) -> None:
        with contextlib.suppress(OSError):  # without the process, the worker's own thread still sends heartbeats
            self._socket.sendall(encode_message(message))


class _HeartbeatLoop:
    """The side of the new process."""

    def __init__(self, inherited: ChildEnvironment) -> None:
        self._host = inherited.parent
        self._pipe = SupervisorPipe(socket.socket(fileno=inherited.pipe))
        self._shared_state = SharedState.attach(inherited.shared_state)
        self._lock = DeathLock(inherited.lock, inherited.lock_path)
        self._hello: Hello | None = None
        self._sender: HeartbeatSender | None = None
        self._outage = Outage(log)
        self._next = 0.0
        self._ended = False
        self._silent_since: float | None = None

    @property
    def _host_lives(self) -> bool:
        return os.getppid() == self._host

    async def run(self) -> None:
        loop, readable = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._pipe, readable.set)
        while self._host_lives and not self._ended:
            self._read()
            if self._pipe.closed:
                loop.remove_reader(self._pipe)  # a closed socket is always readable
            if self._hello is not None and boottime() >= self._next:
                await self._beat(self._hello)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(_CHECK, max(0.01, self._next - boottime())) if self._hello else _CHECK):
                    await readable.wait()
            readable.clear()
        self._read()
        if self._hello is not None and not self._ended and not self._host_lives:
            await self._give_back(self._hello)
        if self._sender is not None:
            await self._sender.close()
        loop.remove_reader(self._pipe)
        self._pipe.close()

    def _read(self) -> None:
        for message in self._pipe.read():
            if isinstance(message, Hello):
                self._hello = message
            elif isinstance(message, Bye):
                self._ended = True
        if self._pipe.closed:
            # A dying process closes its files before it is seen dead: only a live host has ended its worker by this.
            now = boottime()
            self._silent_since = self._silent_since or now
            self._ended = self._ended or (self._host_lives and now - self._silent_since > _SILENCE)

    def _sender_for(self, hello: Hello) -> HeartbeatSender:
        if self._sender is None:
            self._sender = HeartbeatSender(
                hello.store, hello.lease / 1e6, self._outage, purpose=" from the heartbeat process"
            )
        return self._sender

    async def _beat(self, hello: Hello) -> None:
        sender = self._sender_for(hello)
        stat = process_tree.read_stat(self._host)
        now, due = boottime(), sender.backup_due(self._shared_state.lease_end)
        self._next = now + sender.period
        if stat is None or stat.stopped or stat.gone:
            return
        if due > now:
            self._next = min(self._next, due)
            return
        sent = await sender.send([Beat(hello.worker)])
        if sent is None:
            self._next = boottime() + sender.retry_in()
        elif sent.replies[0].alive:
            self._shared_state.extend(sent.at + sender.lease)

    async def _give_back(self, hello: Hello) -> None:
        """Give back the jobs of a dead host. The kernel changes our parent's pid only after its last thread ended."""
        sender, until = self._sender_for(hello), boottime() + _RETIRE_LIMIT
        acks = ack_early_jobs_of_crash(self._shared_state.jobs(), hello.worker, hello.code)
        retry_log = RetryLog("giving back the jobs of a dead host", log, self._outage)
        while boottime() < until:
            try:
                store = await sender.store()
                result = await store.retire(hello.worker, Outcome.CRASHED, acks)
            except TEMPORARY as error:
                await asyncio.sleep(retry_log.record_failure(error))
            else:
                await count_lost_worker(store, result, Outcome.CRASHED, acks)
                self._lock.close(unlink=True)
                return


def main() -> int:
    """The entry of the new process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    inherited = ChildEnvironment.take()
    if inherited is None:
        log.error("%s is not set: this command is started by an embedded worker", VARIABLE)
        return 1
    try:
        asyncio.run(_HeartbeatLoop(inherited).run())
    except StoreError as error:
        log.error("the heartbeat process cannot send heartbeats: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
