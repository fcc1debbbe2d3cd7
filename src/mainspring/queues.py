"""app.queues: what is in them, and what they do, for the whole fleet. Every verb has its a-twin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from mainspring import acting, checks, sync
from mainspring.clock import to_datetime
from mainspring.errors import DrainTimeout, InvalidOption
from mainspring.jobs import Counts
from mainspring.pace import Pace
from mainspring.query import Query
from mainspring.records import Mode, QueueRow, Tally
from mainspring.reserved import Reserved
from mainspring.states import LIVE, WAITING, Action, State

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.duration import Duration


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A queue when the store was asked."""

    name: str
    mode: Mode
    since: datetime | None
    """When it was paused or set to drain; None for an open one."""
    counts: Counts
    """Its live jobs by state."""
    oldest: datetime | None
    """When the job was enqueued that has been ready for the longest of them all."""


QueueInfos = list[QueueInfo]


class Queues(Reserved):
    """A queue is there when somebody uses its name. What it does is stored and outlives restarts."""

    LATER = frozenset({"configure"})

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    # ---- ask ----------------------------------------------------------------------------------

    def list(self) -> QueueInfos:
        """Every queue that has a live job, is paused or draining, or is used by a task of this app; by name."""
        return sync.run("app.queues.list", self.alist())

    async def alist(self) -> QueueInfos:
        return await self._look(None)

    def get(self, name: str) -> QueueInfo:
        """One queue; open and empty if nobody has used the name yet."""
        return sync.run("app.queues.get", self.aget(name))

    async def aget(self, name: str) -> QueueInfo:
        [found] = await self._look(_checked([name]))
        return found

    # ---- do -----------------------------------------------------------------------------------

    def pause(self, *names: str) -> None:
        """Start none of their jobs from now on, anywhere, until :meth:`resume`; what runs goes on, new jobs wait."""
        return sync.run("app.queues.pause", self.apause(*names))

    async def apause(self, *names: str) -> None:
        await self._set(names, Mode.PAUSED)

    def resume(self, *names: str) -> None:
        """Open them again, whether they were paused or draining."""
        return sync.run("app.queues.resume", self.aresume(*names))

    async def aresume(self, *names: str) -> None:
        await self._set(names, Mode.OPEN)

    def drain(self, name: str, *, wait: bool = False, timeout: Duration | None = None) -> QueueInfo:
        """Take no more jobs (``QueueDraining``) and work off what is there; stays so until :meth:`resume`.

        With ``wait`` it returns when no live job is left, or raises ``DrainTimeout``.
        """
        return sync.run("app.queues.drain", self.adrain(name, wait=wait, timeout=timeout))

    async def adrain(self, name: str, *, wait: bool = False, timeout: Duration | None = None) -> QueueInfo:
        if timeout is not None and not wait:
            raise InvalidOption("timeout", timeout, "has no meaning without wait=True")
        pace = Pace(timeout)
        await self._set([name], Mode.DRAINING)
        while (info := await self.aget(name)).counts.live and wait:
            if not await pace.pause():
                raise DrainTimeout(name, pace.limit, info.counts.live)
        return info

    def purge(self, name: str) -> int:
        """Delete the jobs that wait in it, at whatever state; those that run are left alone. Returns how many."""
        return sync.run("app.queues.purge", self.apurge(name))

    async def apurge(self, name: str) -> int:
        query = Query.where(queues=_checked([name]), states=WAITING)
        return await acting.act(await self._app.client.store(), Action.DELETE, query)

    # ---- private ------------------------------------------------------------------------------

    async def _set(self, names: Iterable[str], mode: Mode) -> None:
        queues = _checked(names)
        await (await self._app.client.store()).set_mode(queues, mode)

    async def _look(self, names: Sequence[str] | None) -> QueueInfos:
        store = await self._app.client.store()
        modes = {row.name: row for row in await store.modes()}
        tallies: dict[str, list[Tally]] = defaultdict(list)
        for tally in await store.tally(Query.where(queues=names, states=LIVE), "queue"):
            tallies[tally.value].append(tally)
        if names is None:
            names = sorted({*tallies, *modes, *self._app.tasks.queues()})
        return [_info(name, modes.get(name), tallies.get(name, [])) for name in names]


def _info(name: str, row: QueueRow | None, tallies: list[Tally]) -> QueueInfo:
    counts = Counts(dict.fromkeys(State, 0))
    counts.update({tally.state: tally.count for tally in tallies})
    ready = [tally.first for tally in tallies if tally.state is State.READY]
    return QueueInfo(
        name=name,
        mode=Mode.OPEN if row is None else row.mode,
        since=None if row is None else to_datetime(row.since),
        counts=counts,
        oldest=to_datetime(ready[0]) if ready else None,
    )


def _checked(names: Iterable[str]) -> list[str]:
    checked = [checks.queue_name(name, "queue") for name in names]
    if not checked:
        raise InvalidOption("names", (), "must name at least one queue", hint='app.queues.pause("email")')
    return checked
