"""What happens to breakers: they hear of the ends of jobs and of other work, and are opened and closed by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.breakers.records import BREAKER_SUFFIX, FOREVER, BreakerRow, is_breaker

from .places import read_buckets
from .room import Size
from .rooms import Rooms
from .switches import Guard, Switch, Told

if TYPE_CHECKING:
    from mainspring.jobs.outcomes import Ack

    from .tx import Tx


def told_of(tx: Tx, name: str) -> Told:
    return tx.told.setdefault(name, Told())


def ended(tx: Tx, buckets: str | None, ack: Ack, began: int) -> None:
    """An attempt of a job with these buckets is over."""
    if ack.fault:
        for name in _named(buckets):
            told_of(tx, name).fail(began, ack.fault)
    elif ack.outcome == "succeeded":
        succeeded(tx, buckets, began)


def succeeded(tx: Tx, buckets: str | None, began: int) -> None:
    """Jobs with these buckets have, of which the last began then."""
    for name in _named(buckets):
        told = told_of(tx, name)
        told.succeeded = max(told.succeeded, began)


def lost(tx: Tx, jobs: list[tuple[str | None, int]], cause: str) -> None:
    """The worker that ran jobs with these buckets, which began then, is gone: one failure for each breaker."""
    began: dict[str, int] = {}
    for buckets, started in jobs:
        for name in _named(buckets):
            began[name] = max(began.get(name, 0), started)
    for name, started in began.items():
        told_of(tx, name).fail(started, f"its worker {'is' if cause == 'lost' else 'has'} {cause}")


def _named(buckets: str | None) -> list[str]:
    if buckets is None or BREAKER_SUFFIX not in buckets:
        return []
    return sorted({each.name for each in read_buckets(buckets) if is_breaker(each.name)})


def hear_all(tx: Tx, rooms: Rooms) -> None:
    """What was told of breakers is weighed; who waits for one that has changed, or for a probe's place, is woken."""
    for name in sorted({*tx.told, *filter(is_breaker, tx.freed)}):
        told = tx.told.get(name)
        switch = Switch.read(tx, name)
        if switch is None and (told is None or not (told.bad or told.good)):
            continue
        limit = rooms.size_of(name)
        if limit is None or limit.kind != Guard.kind:
            continue
        switch = switch or Switch(name)
        _hear(tx, switch, told or Told(), limit)
    tx.told.clear()


def _hear(tx: Tx, switch: Switch, told: Told, limit: Size) -> None:
    before = switch.until
    if switch.hear(told, limit, tx.now):
        switch.write(tx)
    if switch.until != before:
        tx.news.append(switch.row(tx.now))
    if switch.until != before or 0 < before <= tx.now:
        tx.woken.update(queue for (queue,) in tx.all("waits", (switch.name,)))


# ---- by hand, and for other work -------------------------------------------------------------------


def set_until(tx: Tx, name: str, span: int | None) -> bool:
    """Open it for so long, for ever with None, or with 0 close it. False if there is none."""
    limit = Rooms(tx).size_of(name)
    if limit is None or limit.kind != Guard.kind:
        return False
    switch = Switch(name)
    if span != 0:
        switch.open(FOREVER if span is None else tx.now + span, tx.now)
        switch.tripped = True
    switch.write(tx)
    tx.woken.update(queue for (queue,) in tx.all("waits", (name,)))
    return True


def is_news(tx: Tx, name: str, good: int, fault: str) -> bool:
    """Whether such an end changes anything; looked at without a lock, for most do not."""
    if fault or Switch.read(tx, name) is not None:
        return True
    found = tx.first("limit", (name,))
    return found is not None and good > 0 and Size(*found).share > 0


def tell(tx: Tx, name: str, began: int, good: int, fault: str) -> BreakerRow | None:
    told = told_of(tx, name)
    told.good = good
    if good:
        told.succeeded = began
    if fault:
        told.fail(began, fault)
    hear_all(tx, Rooms(tx))
    return tx.news[-1] if tx.news else None
