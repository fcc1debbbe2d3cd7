"""``python -m tests.processes.locking KIND TTL``: holds a lock, or leads, until its input ends; prints what happens."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import threading

from mainspring import Mainspring
from mainspring.common.duration import to_seconds
from mainspring.errors import LockLost

app = Mainspring(os.environ["MAINSPRING_URL"])
NAME = "nightly"


def say(*words: object) -> None:
    print(*words, flush=True)


def in_thread(ttl: str) -> None:
    """Sync code: it asks now and then."""
    lock = app.lock(NAME, ttl=ttl, wait="60s")
    with lock:
        say("held", lock.token)
        while not lock.lost:
            over.wait(0.01)
            if over.is_set():
                return
        try:
            lock.check()
        except LockLost as error:
            say("told", error.token)
            raise


async def in_task(ttl: str) -> None:
    async with app.lock(NAME, ttl=ttl, wait="60s") as lock:
        say("held", lock.token)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            say("told", lock.token)
            raise


def with_the_gil(ttl: str) -> None:
    """A call in C that lets no other thread run: a short one, and one that is longer than the ttl."""
    sleep = ctypes.PyDLL(None).usleep  # of a PyDLL a call keeps the GIL
    seconds = to_seconds(ttl)
    with app.lock(NAME, ttl=ttl) as lock:
        say("held", lock.token)
        sleep(int(seconds * 0.4e6))
        lock.check()
        say("kept", lock.token)
        sleep(int(seconds * 1.2e6))
        assert lock.lost
        say("told", lock.token)


def leading(ttl: str) -> None:
    with app.election(NAME, elected=lambda t: say("held", t), lost=lambda t: say("told", t), ttl=ttl):
        over.wait()


def watch() -> None:
    sys.stdin.read()
    over.set()


over = threading.Event()

if __name__ == "__main__":
    kind, ttl = sys.argv[1:]
    threading.Thread(target=watch, daemon=True).start()
    try:
        if kind == "task":
            asyncio.run(in_task(ttl))
        else:
            {"leader": leading, "gil": with_the_gil, "thread": in_thread}[kind](ttl)
    except LockLost as error:
        say("LockLost", error.token)
    say("over")
