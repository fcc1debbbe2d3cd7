"""An app whose tasks run in process slots. Its store is that of ``MAINSPRING_URL`` at the first use."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mainspring import Context, Depends, Mainspring, Snooze

app = Mainspring()
app.pool(name="short-lived", max=1, max_jobs_per_child=3)
app.pool(name="aged", max=1, max_age="1ms")
app.pool(name="small", max=1, max_memory_per_child="200MB")

if "HEAVY_BREAKS" in os.environ:
    raise RuntimeError("this module cannot be imported twice")


def note(name: str, text: object) -> None:
    """Leave a line in a file of the test's folder."""
    folder = os.environ.get("HEAVY_FOLDER")
    if folder:
        with (Path(folder) / name).open("a") as file:
            file.write(f"{text}\n")


def wait_for(name: str) -> None:
    """Wait until the test has made this file."""
    while not (Path(os.environ["HEAVY_FOLDER"]) / name).exists():
        time.sleep(0.01)


@app.lifespan
def process() -> Iterator[dict[str, int]]:
    note("begun", os.getpid())
    yield {"pid": os.getpid()}
    note("ended", os.getpid())


def supplied() -> Iterator[str]:
    yield f"from {os.getpid()}"
    note("closed", os.getpid())


@app.task(executor="process")
def pid() -> int:
    return os.getpid()


@app.task(executor="process")
def report(ctx: Context, word: str, source: str = Depends(supplied)) -> dict[str, Any]:
    ctx.log(f"the word is {word}", size=len(word))
    ctx.progress(1, 2, "half", word=word)
    for n in range(3):
        ctx.send(n)
    return {
        "pid": os.getpid(), "state": ctx.state["pid"], "source": source, "attempt": ctx.attempt,
        "job": str(ctx.job_id), "current": Context.current() is ctx, "word": word,
    }  # fmt: skip


@app.task(executor="process", retries=2, backoff="10ms")
def fail_once(ctx: Context) -> int:
    if ctx.attempt == 1:
        raise ValueError("the first attempt fails")
    return ctx.attempt


@app.task(executor="process", retries=0)
def unstorable() -> object:
    return object()


@app.task(executor="process")
def snooze_once(ctx: Context) -> int:
    if ctx.token and not (Path(os.environ["HEAVY_FOLDER"]) / "snoozed").exists():
        note("snoozed", "once")
        raise Snooze("10ms")
    return ctx.attempt


@app.task(executor="process", retries=0, timeout="1s")
def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


@app.task(executor="process", retries=0, timeout="1s")
def hold_gil() -> None:
    note("holding", os.getpid())
    re.match(r"(a+)+$", "a" * 64 + "b")


@app.task(executor="process", retries=0, soft_timeout="300ms")
def soft() -> str:
    try:
        time.sleep(60)
    except BaseException as error:  # noqa: BLE001 - it is the exception that the test is about
        return type(error).__name__
    return "nothing"


@app.task(executor="process", retries=0)
def wait_forever() -> None:
    note("waiting", os.getpid())
    time.sleep(600)


@app.task(executor="process")
def gated(name: str) -> int:
    note("gated", os.getpid())
    wait_for(name)
    return os.getpid()


@app.task(executor="process", crashes=2, retries=0)
def die(how: str) -> None:
    note("died", f"{how} {os.getpid()}")
    match how:
        case "exit":
            os._exit(7)
        case "segfault":
            ctypes.string_at(0)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "abort":
            os.abort()
        case "sys.exit":
            sys.exit(3)


@app.task(executor="process")
def grow(size: int) -> int:
    kept.append(bytearray(size))
    return os.getpid()


kept: list[bytearray] = []


@app.task(executor="process")
def echo(text: str) -> str:
    return text


@app.task(executor="process", pool="short-lived")
def counted(n: int) -> int:
    note("counted", n)
    return os.getpid()


@app.task(executor="process", pool="aged")
def aged() -> int:
    return os.getpid()


@app.task(executor="process", pool="small")
def grow_small(size: int) -> int:
    kept.append(bytearray(size))
    return os.getpid()


@app.task(executor="process")
def add(a: int, b: int) -> int:
    note("added", a)
    return a + b


@app.task(executor="process")
def parent() -> int:
    return add.enqueue(2, 3).result(timeout=120) + 1


@app.task(executor="process")
def terminate_a_fork() -> int | None:
    """``multiprocessing`` ends its processes with SIGTERM and waits for them."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    child.terminate()
    child.join()
    return child.exitcode


@app.task
def beside() -> int:
    return os.getpid()
