"""The arguments and the replies of ``beat.lua`` and ``workers.lua``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.errors import StoreConflict
from mainspring.worker.records import Beat, BeatResult, WorkerRow

from . import rows

LONGEST = 255
"""Bytes of a worker's name."""

_pack = msgspec.msgpack.Encoder().encode


def beat_arguments(beats: Sequence[Beat]) -> list[bytes | str]:
    words: list[bytes | str] = []
    for beat in beats:
        new = beat.register
        if len(beat.worker.encode()) > LONGEST:
            raise StoreConflict(f"the name of worker {beat.worker[:40]}... is longer than {LONGEST} bytes")
        words += (
            beat.worker,
            _pack((new.queues, new.tasks, new.lease)) if new else b"",
            new.info if new else b"",
        )
    return words


def beaten(beats: Sequence[Beat], numbers: Sequence[int]) -> list[BeatResult]:
    return [BeatResult(beat.worker, number > 0, number) for beat, number in zip(beats, numbers, strict=True)]


def worker_rows(reply: list[list[Any]]) -> list[WorkerRow]:
    """Oldest first."""
    return sorted((_worker_row(row) for row in reply), key=lambda row: (row.started, row.id))


def _worker_row(row: list[Any]) -> WorkerRow:
    name, number, turn, lost, started, seen, running, lease, queues, tasks, info = row
    return WorkerRow(
        id=name.decode(),
        number=int(number),
        turn=int(turn),
        lost=lost == b"1",
        started=int(started),
        seen=int(seen),
        running=running,
        lease=int(lease),
        queues=rows.names(queues),
        tasks=rows.names(tasks),
        info=info,
    )
