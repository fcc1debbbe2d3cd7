"""A job or a guest leaves its buckets: its places are free, and what it really cost is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .parking import let_in
from .places import costs_of, names_of, read_buckets
from .rooms import Rooms, limit_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .tx import Tx


def free(tx: Tx, jobs: Sequence[tuple[bytes, str]]) -> None:
    """These jobs, with these buckets, run no more; who waits for their places is told when the call settles."""
    held: list[tuple[str, bytes]] = []
    for job, buckets in jobs:
        names = names_of(buckets)
        tx.freed.update(names)
        if "=" in names[-1]:
            held += [(name, job) for name in names]
    if held:
        tx.cursor.executemany(tx.sql["free_hold"], held)


def correct(tx: Tx, buckets: str | None, spent: Sequence[tuple[str, int]], slow: int) -> None:
    """What an attempt of a job with these buckets came to."""
    if spent or slow > 0:
        correct_costs(tx, costs_of(read_buckets(buckets)), spent, slow)


def correct_costs(tx: Tx, costs: Mapping[str, int], spent: Sequence[tuple[str, int]], slow: int) -> None:
    rooms = Rooms(tx)
    real = dict(spent)
    for name, cost in costs.items():
        room = rooms[name]
        if slow > 0:
            room.slow(tx.now + slow)
        limit = limit_of(name)
        if limit in real and room.correct(cost, real[limit]):
            let_in(tx, rooms, name)
