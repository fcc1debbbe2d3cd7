"""The rules of breakers: what the ends of work do to the counts and the state of one breaker.

:func:`count_ends` is a pure function from the stored row and some ends to the next row. It is the only place that
counts, opens and closes. Workers, rescuers and guarded blocks call it and write the result by compare-and-set.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Literal, NamedTuple

import msgspec

from mainspring.breakers.records import FOREVER, BreakerRow, BreakerSwap, StoredBreaker
from mainspring.limits.records import Limit

BREAKER_PIECES = 10
"""A breaker with a share counts its window in this many pieces."""

SHARE_WHOLE = 1_000_000
"""``Limit.share`` is in millionths: this is the share of all calls."""

_REVS = 1 << 52
"""Numbers of rows are below this: a number of Lua is exact up to 2^53."""

Change = Literal["open", "half_open", "closed"]


class BreakerEnd(NamedTuple):
    """One end of work that a breaker counts, or the start of a probe."""

    kind: Literal["start", "success", "failure"]
    started: int
    """When the work was claimed or began, by the store's clock. Of several successes, the latest."""
    n: int = 1
    """The number of successes, for a breaker with a share."""
    error: str = ""


class BreakerCount(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a breaker has counted: ``StoredBreaker.doc`` as JSON."""

    failures: int = 0
    calls: int = 0
    probing: bool = False
    """A probe has started since the breaker became half open."""
    tripped: bool = False
    error: str = ""
    pieces: tuple[tuple[int, int, int], ...] = ()
    """Of a closed breaker with a share: (begin, successes, failures) for each piece of its window."""


class Counted(NamedTuple):
    """The result of :func:`count_ends`."""

    swap: BreakerSwap | None
    """The write; None if the ends change nothing."""
    changes: tuple[Change, ...]
    """What the write does to the state, in order."""


_decode = msgspec.json.Decoder(BreakerCount).decode
_encode = msgspec.json.encode


def declared(limit: Limit, now: int = 0) -> StoredBreaker:
    """A breaker that has counted nothing yet."""
    return StoredBreaker(now, limit.name, limit.size, limit.per, limit.burst, limit.share, limit.span)


def count_ends(breaker: StoredBreaker, ends: Iterable[BreakerEnd]) -> Counted:
    """Count these ends, in this order. All of them were claimed before this write, so an opening ignores the rest.

    An end with a later start than the end of an open breaker is no probe while the breaker is still open: the token of
    a job is ahead of the time if the store's clock was set back.
    """
    before = _read(breaker)
    count, until, failed = before, breaker.until, False
    open_for: int | None = None
    changes: list[Change] = []
    for end in ends:
        if end.started < until or breaker.now < until:
            continue
        if until and end.kind == "start":
            if not count.probing:
                changes.append("half_open")
            count = msgspec.structs.replace(count, probing=True)
        elif until and end.kind == "success":
            count, until, open_for = BreakerCount(), 0, 0
            changes.append("closed")
        elif until:
            count = msgspec.structs.replace(count, probing=False, tripped=False, error=end.error)
            return _write(breaker, before, count, breaker.per, (*changes, "open"))
        elif end.kind != "start":
            failed = failed or end.kind == "failure"
            count = _add_to_window(count, end, breaker) if breaker.share else _add_in_a_row(count, end)
            if not breaker.share and count.failures >= breaker.burst:
                break
    if failed and _opens(count, breaker):
        count = msgspec.structs.replace(count, pieces=())
        return _write(breaker, before, count, breaker.per, (*changes, "open"))
    return _write(breaker, before, count, open_for, tuple(changes))


def set_by_hand(breaker: StoredBreaker, span: int | None) -> BreakerSwap:
    """Open the breaker for ``span`` microseconds, with None until it is reset; close it with 0. Counts are deleted."""
    doc = _text(BreakerCount(tripped=span != 0))
    open_for = FOREVER if span is None else span
    return BreakerSwap(name=breaker.name, expected=breaker.rev, rev=_new_rev(), open_for=open_for, doc=doc)


def breaker_row(breaker: StoredBreaker) -> BreakerRow:
    """The state of a breaker, for people and for the core."""
    count = _read(breaker)
    if not breaker.until:
        if breaker.share:
            count = _trim(count, breaker)
        error = count.error if count.failures else ""
        return BreakerRow(name=breaker.name, failures=count.failures, calls=count.calls, error=error)
    return BreakerRow(
        name=breaker.name, state="half_open" if breaker.until <= breaker.now else "open", failures=count.failures,
        calls=count.calls, opened=breaker.opened, until=None if breaker.until >= FOREVER else breaker.until,
        error=count.error, tripped=count.tripped,
    )  # fmt: skip


def changed_rows(before: StoredBreaker, after: StoredBreaker, changes: Iterable[Change]) -> list[BreakerRow]:
    """The state of the breaker after each of these changes, for events."""
    rows: dict[Change, BreakerRow] = {
        "closed": BreakerRow(name=after.name),
        "half_open": msgspec.structs.replace(breaker_row(before), state="half_open"),
        "open": breaker_row(after),
    }
    return [rows[change] for change in changes]


# ---- one end ---------------------------------------------------------------------------------------------


def _add_in_a_row(count: BreakerCount, end: BreakerEnd) -> BreakerCount:
    if end.kind == "success":
        return BreakerCount()
    return BreakerCount(failures=count.failures + 1, error=end.error)


def _add_to_window(count: BreakerCount, end: BreakerEnd, breaker: StoredBreaker) -> BreakerCount:
    begin = breaker.now - breaker.now % max(breaker.span // BREAKER_PIECES, 1)
    piece = (begin, end.n, 0) if end.kind == "success" else (begin, 0, 1)
    count = msgspec.structs.replace(count, pieces=(*count.pieces, piece), error=end.error or count.error)
    return _trim(count, breaker)


def _trim(count: BreakerCount, breaker: StoredBreaker) -> BreakerCount:
    """Drop the pieces before the window, and join the counts of one piece.

    Pieces that lie more than one window ahead are dropped too: the store's clock was set back since.
    """
    pieces: dict[int, tuple[int, int]] = {}
    for begin, good, bad in count.pieces:
        if abs(begin - breaker.now) < breaker.span:
            before = pieces.get(begin, (0, 0))
            pieces[begin] = before[0] + good, before[1] + bad
    joined = tuple((begin, good, bad) for begin, (good, bad) in pieces.items())
    failures = sum(bad for _, _, bad in joined)
    calls = failures + sum(good for _, good, _ in joined)
    return msgspec.structs.replace(count, failures=failures, calls=calls, pieces=joined)


def _opens(count: BreakerCount, breaker: StoredBreaker) -> bool:
    """Whether a closed breaker with these counts opens, at a failure."""
    if not breaker.share:
        return count.failures >= breaker.burst
    return count.calls >= breaker.burst and count.failures * SHARE_WHOLE >= breaker.share * count.calls


# ---- rows ------------------------------------------------------------------------------------------------


def _write(
    breaker: StoredBreaker, before: BreakerCount, count: BreakerCount, open_for: int | None, changes: tuple[Change, ...]
) -> Counted:
    if count == before and not changes:
        return Counted(None, ())
    swap = BreakerSwap(name=breaker.name, expected=breaker.rev, rev=_new_rev(), open_for=open_for, doc=_text(count))
    return Counted(swap, changes)


def _read(breaker: StoredBreaker) -> BreakerCount:
    """The counts of the row. Those of a window mean nothing if the breaker now counts failures in a row."""
    count = _decode(breaker.doc) if breaker.doc else BreakerCount()
    return BreakerCount() if count.pieces and not breaker.share else count


def _text(count: BreakerCount) -> str:
    return "" if count == BreakerCount() else _encode(count).decode()


def _new_rev() -> int:
    """At random, so that no two writes have one number: not after the row was deleted, and not in two processes."""
    return secrets.randbelow(_REVS - 1) + 1
