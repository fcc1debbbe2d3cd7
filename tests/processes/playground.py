"""Tasks for the process tests. Every body notes its START and END in a journal outside the store.

``Playground(app)`` declares the tasks on an app; the module's own ``app`` takes its URL from the
environment, as a worker process does.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

from mainspring import AsyncContext, Context, Mainspring
from mainspring.common.clock import boottime
from tests.timing import milliseconds

JOURNAL = "PLAYGROUND_JOURNAL"


def note(word: str, ctx: Context | AsyncContext) -> None:
    """One line, one write: lines of several processes never mix."""
    line = f"{word} {ctx.job_id} {ctx.token} {os.getpid()} {boottime():.6f}\n"
    fd = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def is_first(path: str) -> bool:
    """True for the first caller of all processes."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


async def gate(path: str) -> None:
    while not Path(path).exists():  # noqa: ASYNC110, ASYNC240 - another process opens the gate
        await asyncio.sleep(0.02)


def sleep_with_gil(seconds: float) -> None:
    """Sleep in one C call that keeps the GIL: no other thread of this process runs meanwhile."""
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))


async def quick(ctx: AsyncContext, number: int = 0) -> int:
    note("START", ctx)
    note("END", ctx)
    return number


async def nap(ctx: AsyncContext, seconds: float) -> int:
    note("START", ctx)
    await asyncio.sleep(seconds)
    note("END", ctx)
    return os.getpid()


def doze(ctx: Context, seconds: float) -> int:
    note("START", ctx)
    time.sleep(seconds)
    note("END", ctx)
    return os.getpid()


def tell(ctx: Context, number: int, seconds: float) -> None:
    """Ends a moment later, with a log line that must be stored before its ack."""
    note("START", ctx)
    time.sleep(seconds)
    ctx.log(f"number {number}")
    note("END", ctx)


async def wait_for(ctx: AsyncContext, path: str) -> int:
    note("START", ctx)
    await gate(path)
    note("END", ctx)
    return ctx.token


async def wait_first(ctx: AsyncContext, path: str) -> int:
    """The first attempt waits for its gate, later ones end at once; each writes what it can."""
    note("START", ctx)
    if is_first(path + ".begun"):
        await gate(path)
    ctx.progress(1, 1, note=f"by {ctx.token}")
    ctx.log(f"done by {ctx.token}")
    note("END", ctx)
    return ctx.token


async def block_loop(ctx: AsyncContext, seconds: float) -> None:
    note("START", ctx)
    time.sleep(seconds)  # noqa: ASYNC251 - this is the fault
    note("END", ctx)


def hold_gil(ctx: Context, seconds: float) -> None:
    note("START", ctx)
    sleep_with_gil(seconds)
    note("END", ctx)


async def wedge(ctx: AsyncContext) -> None:
    """Ends well and leaves something behind that stops the loop for good."""
    note("START", ctx)
    asyncio.get_running_loop().call_later(1.0, time.sleep, 600)
    note("END", ctx)


async def poison(ctx: AsyncContext) -> None:
    note("START", ctx)
    await asyncio.sleep(0.2)  # the neighbours shall have begun
    os.kill(os.getpid(), signal.SIGKILL)


def end_child(ctx: Context) -> int | None:
    """Forks a process and terminates it, as a pool does with its children."""
    note("START", ctx)
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # forking beside threads: this is the fault that people have
        child.start()
    child.terminate()
    child.join(30)
    note("END", ctx)
    return child.exitcode


def chatter(ctx: Context) -> None:
    """Logs without end, so that its time limit strikes inside logging as likely as not."""
    note("START", ctx)
    logger = logging.getLogger("chatter")
    while True:
        logger.warning("still here")


async def leak_exit(ctx: AsyncContext) -> None:
    """Leaves a task behind that ends the event loop while the job still runs."""
    note("START", ctx)

    async def leaves() -> None:
        await asyncio.sleep(0.05)
        raise SystemExit(0)

    kept.append(asyncio.create_task(leaves()))
    await asyncio.sleep(600)


kept: list[asyncio.Task[None]] = []


def leave(ctx: Context, code: int) -> None:
    """Ends its process as if all were well."""
    note("START", ctx)
    os._exit(code)


def stuck(ctx: Context, path: str) -> str:
    """The first attempt never ends, whatever is raised in it; the second does."""
    note("START", ctx)
    first = is_first(path)
    while first:
        try:
            time.sleep(600)
        except BaseException:  # noqa: BLE001 - it will not be talked to
            continue
    note("END", ctx)
    return "second"


async def stuck_loop(ctx: AsyncContext, path: str) -> str:
    """The same on the loop: it does not yield."""
    note("START", ctx)
    if is_first(path):
        time.sleep(600)  # noqa: ASYNC251 - this is the fault
    note("END", ctx)
    return "second"


def guarded(ctx: Context, path: str) -> None:
    """Keeps the GIL for ever unless the gate is open: only a kill ends it."""
    note("START", ctx)
    if not Path(path).exists():
        sleep_with_gil(600)
    note("END", ctx)


def leave_child(ctx: Context, path: str) -> None:
    """The first attempt starts a process that leaves the session, writes down its pid, and kills its own."""
    note("START", ctx)
    if is_first(path):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        Path(path).write_text(str(child.pid))
        os.kill(os.getpid(), signal.SIGKILL)
    note("END", ctx)


class Playground:
    """The tasks, declared on ``app``."""

    def __init__(self, app: Mainspring) -> None:
        self.app = app
        self.quick = app.task(name="quick", retries=0)(quick)
        self.nap = app.task(name="nap", retries=0)(nap)
        self.doze = app.task(name="doze", retries=0)(doze)
        self.wait_for = app.task(name="wait_for", retries=0)(wait_for)
        self.tell = app.task(name="tell", retries=0)(tell)
        self.wait_first = app.task(name="wait_first", retries=0)(wait_first)
        self.block_loop = app.task(name="block_loop", retries=0)(block_loop)
        self.hold_gil = app.task(name="hold_gil", retries=0)(hold_gil)
        self.wedge = app.task(name="wedge", retries=0)(wedge)
        self.end_child = app.task(name="end_child", retries=0)(end_child)
        self.chatter = app.task(name="chatter", retries=0, timeout="80ms")(chatter)
        self.leak_exit = app.task(name="leak_exit", retries=0)(leak_exit)
        self.leave = app.task(name="leave", retries=0)(leave)
        self.poison = app.task(name="poison", retries=0)(poison)
        limit = milliseconds(0.5)  # the second attempts must end within it
        self.stuck = app.task(name="stuck", retries=1, timeout=limit, backoff="100ms")(stuck)
        self.stuck_loop = app.task(name="stuck_loop", retries=1, timeout=limit, backoff="100ms")(stuck_loop)
        self.early = app.task(name="early", ack="early")(wait_for)
        self.strict = app.task(name="strict", retries=0, fence="strict")(guarded)
        self.leave_child = app.task(name="leave_child", retries=0)(leave_child)


app = Mainspring()
tasks = Playground(app)
