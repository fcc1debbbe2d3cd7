"""The body of a bare driver's job: what every floor encodes and decodes."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from benchmarks.programs.stamps import record

BATCH = 100
_encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(dict[str, Any]).decode


def body(task: str, n: int) -> bytes:
    """With an id made here, for whoever enqueues wants to ask for the job later."""
    return _encode({"id": os.urandom(16).hex(), "task": task, "args": [n]})


async def noop(n: int) -> None:
    pass


async def stamp(sent: int) -> None:
    record(sent)


TASKS = {"noop": noop, "stamp": stamp}


async def run(data: bytes) -> None:
    """One job."""
    job = decode(data)
    await TASKS[job["task"]](*job["args"])
