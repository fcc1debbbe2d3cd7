"""A producer: ``produce PROGRAM TASK one|many|fill|probe|together COUNT [SIZE]``. Prints what it took as JSON.

``one``: call by call. ``many``: in batches of SIZE. ``fill``: exactly COUNT, to prepare a drain.
``probe``: now and then, with the moment of the call as argument.
``together``: call by call in each of fifty asyncio tasks at once.

A program has ``one`` and ``many``, or ``aone`` and ``amany`` where it is at its best in asyncio; ``together`` always
uses ``aone``. ``lifespan``, if it has one, is an asynchronous context around them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

WARM_UP = 20
PRODUCERS = 50


def chunks(count: int, size: int) -> Iterator[range]:
    for start in range(0, count, size):
        yield range(start, min(start + size, count))


def one(app: Any, task: str, count: int, _size: int) -> None:
    for n in range(count):
        app.one(task, n)


def many(app: Any, task: str, count: int, size: int) -> None:
    for numbers in chunks(count, size):
        app.many(task, numbers)


def probe(app: Any, task: str, count: int, _size: int) -> None:
    for _ in range(count):
        time.sleep(random.uniform(0.02, 0.06))
        app.one(task, time.monotonic_ns())


async def aone(app: Any, task: str, count: int, _size: int) -> None:
    for n in range(count):
        await app.aone(task, n)


async def amany(app: Any, task: str, count: int, size: int) -> None:
    for numbers in chunks(count, size):
        await app.amany(task, numbers)


async def aprobe(app: Any, task: str, count: int, _size: int) -> None:
    for _ in range(count):
        await asyncio.sleep(random.uniform(0.02, 0.06))
        await app.aone(task, time.monotonic_ns())


async def together(app: Any, task: str, count: int, _size: int) -> None:
    """Each producer waits for its own job before it makes the next, as a request handler does."""
    share = count // PRODUCERS
    await asyncio.gather(*[aone(app, task, share, 1) for _ in range(PRODUCERS)])


PLAIN = {"one": one, "many": many, "fill": many, "probe": probe}
ASYNC = {"one": aone, "many": amany, "fill": amany, "probe": aprobe, "together": together}
WARMED = ("one", "many", "together")


def produce(app: Any, task: str, mode: str, count: int, size: int) -> dict[str, float]:
    call = PLAIN[mode]
    if mode in WARMED:
        call(app, task, WARM_UP, WARM_UP)
    began, used = time.perf_counter(), time.process_time()
    call(app, task, count, size)
    return _took(began, used)


async def aproduce(app: Any, task: str, mode: str, count: int, size: int) -> dict[str, float]:
    call = ASYNC[mode]
    async with getattr(app, "lifespan", contextlib.nullcontext)():
        if mode in WARMED:
            await call(app, task, PRODUCERS, WARM_UP)
        began, used = time.perf_counter(), time.process_time()
        await call(app, task, count, size)
        return _took(began, used)


def _took(began: float, used: float) -> dict[str, float]:
    return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - used}


def run(coroutine: Any) -> Any:
    """On uvloop, which every environment has."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)


def main(program: str, task: str, mode: str, count: int, size: int = 1000) -> None:
    app = importlib.import_module("benchmarks.programs." + program)
    if mode == "together" or not hasattr(app, "one"):
        took = run(aproduce(app, task, mode, count, size))
    else:
        took = produce(app, task, mode, count, size)
    print(json.dumps(took))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
