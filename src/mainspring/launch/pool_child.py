"""The entry of a pool child: ``python -m mainspring.launch.pool_child``, started by a worker.

The worker passes one end of a channel and its shared state. The first message says which app to import.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import sys
import threading
from typing import Any

from mainspring.common.clock import boottime
from mainspring.common.current import importing
from mainspring.launch.child import explain_error, load_target
from mainspring.observe import logs
from mainspring.pools.channel import MessageReader
from mainspring.pools.process import CHANNEL
from mainspring.pools.records import (
    ChildTarget,
    Close,
    ImportFailed,
    Ready,
    decode_target,
    decode_to_child,
)
from mainspring.worker.job_lines import job_lines_at
from mainspring.worker.lease.shared_state import SharedState
from mainspring.worker.lifespan import Lifespans
from mainspring.worker.run.attempt import RunEnvironment
from mainspring.worker.run.child.link import ChildLink, end_process
from mainspring.worker.run.child.reports import ChildLender, ChildReports
from mainspring.worker.run.child.runner import WAKE, JobRunner
from mainspring.worker.supervise import shutdown, signals

log = logging.getLogger("mainspring.pool")

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run one child to its end."""
    given = os.environ.pop(CHANNEL, None)
    if given is None:
        print(f"{CHANNEL} is not set: a worker starts this command", file=sys.stderr)  # noqa: T201 - for people
        return 2
    channel, shared_state, parent = map(int, given.split(","))
    for fd in (channel, shared_state):
        os.set_inheritable(fd, False)
    _die_with(parent)
    _ignore_stop_signals()
    signals.reset_in_forked_children()
    signals.dump_on_quit()
    end = socket.socket(fileno=channel)
    reader, link = MessageReader(end), ChildLink(end)
    target = _read_target(reader)
    began = boottime()
    try:
        config = _import_config(target)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything while it is imported
        link.send(ImportFailed(explain_error(error)))
        return 1
    child = _PoolChild(target, config, SharedState.attach(shared_state), reader, link, int((boottime() - began) * 1e6))
    return child.run()


def _die_with(parent: int) -> None:
    """The kernel kills this process when the thread of its parent ends that started it."""
    if sys.platform.startswith("linux"):
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), *(ctypes.c_ulong(0),) * 3)
    if os.getppid() != parent:
        os._exit(1)


def _ignore_stop_signals() -> None:
    """A service manager sends its stop signal to every process of the service. The worker ends its children itself.

    Not ``SIG_IGN``: programs that a job starts would inherit it.
    """
    for number in (*signals.STOP_SIGNALS, WAKE):
        signal.signal(number, lambda *_: None)


def _read_target(reader: MessageReader) -> ChildTarget:
    while True:
        reader.receive()
        for message in reader.messages():
            return decode_target(message)
        if reader.closed:
            os._exit(1)


def _import_config(target: ChildTarget) -> Any:
    sys.path[:] = target.path
    token = importing.set(True)
    try:
        app: Any = load_target(target.target)
        app.settings.use(target.address)
        config = app.parts()
    finally:
        importing.reset(token)
    logs.configure(target.logs, worker=True)
    tasks = {name: spec.in_thread() for name, spec in config.tasks.items()}
    return config._replace(tasks=tasks, logs=target.logs)


class _PoolChild:
    """The process after its imports: the control thread serves the channel, the main thread runs bodies."""

    def __init__(
        self, target: ChildTarget, config: Any, shared_state: SharedState, reader: MessageReader, link: ChildLink,
        import_us: int,
    ) -> None:  # fmt: skip
        self._target = target
        self._config = config
        self._shared_state = shared_state
        self._reader = reader
        self._link = link
        self._import_us = import_us
        self._grace = target.grace / 1e6
        self._made = threading.Event()
        self._runner: JobRunner | None = None
        self._code = 0

    def run(self) -> int:
        control = threading.Thread(target=self._control, name="mainspring-control", daemon=True)
        control.start()
        self._made.wait()
        if self._runner is not None:
            self._runner.main.serve()
        control.join(self._grace)
        shutdown.leave_process(self._code, grace=self._grace / 2)
        return self._code

    def _control(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - the end of this thread is the end of the process
            log.critical("a pool child fails: %r", error)
            shutdown.exit_now(1)

    async def _serve(self) -> None:
        config = self._config
        lifespans = Lifespans(config.lifespans, self._grace)
        environment = RunEnvironment(config.version)
        environment.app = config.app
        environment.job_lines = job_lines_at(config.logs.jobs)
        try:
            environment.state = await lifespans.start()
        except Exception as error:  # noqa: BLE001 - user code
            self._link.send(ImportFailed(explain_error(error)))
            self._code = 1
            self._made.set()
            return
        environment.reports = ChildReports(self._link)  # type: ignore[assignment]  # the part of it that bodies use
        environment.lender = ChildLender(self._link, config.limits)  # type: ignore[assignment]  # the same
        runner = self._runner = JobRunner(
            self._link, self._shared_state, self._target.line, config.tasks, config.learn, config.middleware,
            environment, self._grace,
        )  # fmt: skip
        self._made.set()
        self._link.send(Ready(self._import_us))
        await self._read_messages(runner)
        await lifespans.stop()
        runner.close()

    async def _read_messages(self, runner: JobRunner) -> None:
        """Until the worker says that no further job comes."""
        loop, closing = asyncio.get_running_loop(), asyncio.Event()

        def handle() -> None:
            for data in self._reader.messages():
                message = decode_to_child(data)
                if isinstance(message, Close):
                    closing.set()
                else:
                    runner.handle(message)

        def read() -> None:
            self._reader.receive()
            handle()
            if self._reader.closed:
                end_process()

        handle()  # what came together with the first message
        loop.add_reader(self._reader.fileno(), read)
        await closing.wait()
        loop.remove_reader(self._reader.fileno())


if __name__ == "__main__":
    sys.exit(main())
