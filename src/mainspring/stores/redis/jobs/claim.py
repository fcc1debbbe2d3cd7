"""Claims: what a turn hands out. The scripts ``lua/_claim*.lua`` choose the jobs."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.stores.redis.driver.constants import FIXED, FLAG_EARLY
from mainspring.stores.redis.rows import end_of_names, names_in, time
from mainspring.worker.records import Claim, Want

_fixed, _FIXED_SIZE = FIXED.unpack_from, FIXED.size


def want_arguments(wants: Sequence[Want]) -> list[tuple[object, ...]]:
    """Lanes, number, and whether the jobs are claimed ahead of a free slot."""
    return [(want.lanes, want.n, want.ahead) for want in wants]


def read_claim(job: bytes, raw: bytes) -> Claim:
    """A claimed job. A large record is at its end."""
    (
        _, _, _, rest, _, priority, attempt, _, turn, _, _, crashes, _, epoch, _,
        enqueued, _, expires, record, more, token, worker,
    ) = _fixed(raw)  # fmt: skip
    start = _FIXED_SIZE + worker
    end = end_of_names(raw, start)
    queue, task, lane = names_in(raw[start:end])
    end += more
    return Claim(
        job, int(token), task, queue, lane, priority, attempt, epoch, crashes, rest & FLAG_EARLY > 0, int(enqueued),
        time(expires), raw[end : end + record] or raw[end:], int(turn),
    )  # fmt: skip
