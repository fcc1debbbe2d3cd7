"""app.queues: what is in them, and what they do, for the whole fleet. Every verb has its a-twin."""

from __future__ import annotations

import getpass
import platform
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict, get_args, get_type_hints

import msgspec

from mainspring.client import blocking
from mainspring.common.clock import to_datetime
from mainspring.common.handles import Reserved
from mainspring.common.pause import PollPause
from mainspring.errors import DrainTimeout, InvalidOption, UnknownOption
from mainspring.jobs import actions
from mainspring.jobs.manager import Counts
from mainspring.jobs.query import Query
from mainspring.jobs.records import TallyRow
from mainspring.options import checks
from mainspring.options.table import resolve_options
from mainspring.queues.records import DisabledMode, QueueMode, QueueRow, QueueSettings
from mainspring.states import LIVE, WAITING, Action, State

if TYPE_CHECKING:
    from typing import Unpack

    from mainspring.app import Mainspring
    from mainspring.common.duration import Duration


OnFull = Literal["error", "wait", "drop_oldest"]
Order = Literal["fifo", "lifo"]
How = Literal["hold", "skip", "reject"]


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A queue when the store was asked."""

    name: str
    mode: QueueMode
    since: datetime | None
    """When it was paused or set to drain; None for an open one."""
    counts: Counts
    """Its live jobs by state."""
    oldest: datetime | None
    """When the job was enqueued that has been ready for the longest of them all."""
    max_depth: int | None = None
    """Most jobs that may wait in it."""
    on_full: OnFull = "error"
    order: Order = "fifo"
    limits: tuple[str, ...] = ()
    """The limits that all jobs name that come to it."""
    disabled: DisabledMode | None = None
    """How, if it is switched off."""
    disabled_since: datetime | None = None
    disabled_by: str = ""

    @property
    def depth(self) -> int:
        """How many jobs wait in it."""
        return self.counts.live - self.counts["running"]


QueueInfos = list[QueueInfo]


class Configured(TypedDict, total=False):
    """What can be set at run time: as in ``app.queue(...)``."""

    max_depth: int | None
    on_full: OnFull
    order: Order


class Queues(Reserved):
    """A queue is there when somebody uses its name. What it does is stored and outlives restarts."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    # ---- ask ----------------------------------------------------------------------------------

    def list(self) -> QueueInfos:
        """Every queue that has a live job, of which something is stored, or that a task of this app uses; by name."""
        return blocking.run("app.queues.list", self.alist())

    async def alist(self) -> QueueInfos:
        return await self._look(None)

    def get(self, name: str) -> QueueInfo:
        """One queue; open and empty if nobody has used the name yet."""
        return blocking.run("app.queues.get", self.aget(name))

    async def aget(self, name: str) -> QueueInfo:
        [found] = await self._look(_checked([name]))
        return found

    # ---- do -----------------------------------------------------------------------------------

    def pause(self, *names: str) -> None:
        """Start none of their jobs from now on, anywhere, until :meth:`resume`; what runs goes on, new jobs wait."""
        return blocking.run("app.queues.pause", self.apause(*names))

    async def apause(self, *names: str) -> None:
        await self._set(names, QueueMode.PAUSED)

    def resume(self, *names: str) -> None:
        """Open them again, whether they were paused or draining."""
        return blocking.run("app.queues.resume", self.aresume(*names))

    async def aresume(self, *names: str) -> None:
        await self._set(names, QueueMode.OPEN)

    def drain(self, name: str, *, wait: bool = False, timeout: Duration | None = None) -> QueueInfo:
        """Take no more jobs (``QueueDraining``) and work off what is there; stays so until :meth:`resume`.

        With ``wait`` it returns when no live job is left, or raises ``DrainTimeout``.
        """
        return blocking.run("app.queues.drain", self.adrain(name, wait=wait, timeout=timeout))

    async def adrain(self, name: str, *, wait: bool = False, timeout: Duration | None = None) -> QueueInfo:
        if timeout is not None and not wait:
            raise InvalidOption("timeout", timeout, "has no meaning without wait=True")
        pace = PollPause(timeout)
        await self._set([name], QueueMode.DRAINING)
        while (info := await self.aget(name)).counts.live and wait:
            if not await pace.pause():
                raise DrainTimeout(name, pace.limit, info.counts.live)
        return info

    def purge(self, name: str) -> int:
        """Delete the jobs that wait in it, at whatever state; those that run are left alone. Returns how many."""
        return blocking.run("app.queues.purge", self.apurge(name))

    async def apurge(self, name: str) -> int:
        query = Query.where(queues=_checked([name]), states=WAITING)
        return await actions.act(await self._app.client.store(), Action.DELETE, query)

    def disable(self, name: str, how: How = "hold") -> None:
        """Start none of its jobs until :meth:`enable`. New ones wait (``hold``), end at once as cancelled with the
        reason skipped (``skip``), or are refused with ``QueueDisabled`` (``reject``). What waits, waits."""
        return blocking.run("app.queues.disable", self.adisable(name, how))

    async def adisable(self, name: str, how: How = "hold") -> None:
        if how not in get_args(How):
            raise InvalidOption("how", how, f"must be one of {', '.join(get_args(How))}", subject=f"queue {name!r}")
        await (await self._app.client.store()).disable_queues(_checked([name]), DisabledMode(how), _who())

    def enable(self, *names: str) -> None:
        """Switch them on again; those that are paused stay so."""
        return blocking.run("app.queues.enable", self.aenable(*names))

    async def aenable(self, *names: str) -> None:
        await (await self._app.client.store()).disable_queues(_checked(names), None)

    def configure(self, name: str, **settings: Unpack[Configured]) -> QueueInfo:
        """Set how a queue works over what the code declares: for every producer, from the next enqueue on, until
        :meth:`reset`. Settings that are not named stay; ``max_depth=None`` lets any number wait."""
        return blocking.run("app.queues.configure", self.aconfigure(name, **settings))

    async def aconfigure(self, name: str, **settings: Unpack[Configured]) -> QueueInfo:
        [queue] = _checked([name])
        subject = f"queue {queue!r}"
        known = get_type_hints(Configured)
        for given in settings:
            if given not in known:
                raise UnknownOption(subject, given, known)
        if not settings:
            hint = f"app.queues.configure({queue!r}, max_depth=10_000)"
            raise InvalidOption("settings", (), "must say at least one", subject=subject, hint=hint)
        resolved = resolve_options("queue", settings, subject=subject)
        told = {given: resolved[given] or 0 for given in settings}
        store = await self._app.client.store()
        rows = {row.name: row for row in await store.queues()}
        before = rows[queue].given if queue in rows else QueueSettings()
        given_now = msgspec.convert(told, QueueSettings).over(before)
        code = self._app.tasks.declared_queues.settings.get(queue, QueueSettings())
        holds = given_now.over(rows[queue].declared if queue in rows else QueueSettings()).over(code)
        if settings.get("on_full", "error") != "error" and not holds.max_depth:
            hint = f"app.queues.configure({queue!r}, max_depth=10_000, on_full={settings['on_full']!r})"
            raise InvalidOption("on_full", settings["on_full"], "needs max_depth", subject=subject, hint=hint)
        await store.configure_queue(queue, given_now)
        return await self.aget(queue)

    def reset(self, name: str, *, declared: bool = False) -> None:
        """Let a queue work as the code declares it; ``declared``: and forget that too, if no code does any more."""
        return blocking.run("app.queues.reset", self.areset(name, declared=declared))

    async def areset(self, name: str, *, declared: bool = False) -> None:
        store, [queue] = await self._app.client.store(), _checked([name])
        await store.configure_queue(queue, None)
        if declared:
            await store.configure_queue(queue, None, declared=True)

    # ---- private ------------------------------------------------------------------------------

    async def _set(self, names: Iterable[str], mode: QueueMode) -> None:
        queues = _checked(names)
        await (await self._app.client.store()).set_queue_mode(queues, mode)

    async def _look(self, names: Sequence[str] | None) -> QueueInfos:
        store = await self._app.client.store()
        modes = {row.name: row for row in await store.queues()}
        tallies: dict[str, list[TallyRow]] = defaultdict(list)
        for tally in await store.tally(Query.where(queues=names, states=LIVE), "queue"):
            tallies[tally.value].append(tally)
        if names is None:
            names = sorted({*tallies, *modes, *self._app.tasks.queues()})
        return [_info(name, modes.get(name), tallies.get(name, [])) for name in names]


def _info(name: str, row: QueueRow | None, tallies: list[TallyRow]) -> QueueInfo:
    counts = Counts(dict.fromkeys(State, 0))
    counts.update({tally.state: tally.count for tally in tallies})
    ready = [tally.first for tally in tallies if tally.state is State.READY]
    return QueueInfo(
        name=name,
        mode=QueueMode.OPEN if row is None else row.mode,
        since=None if row is None or row.mode is QueueMode.OPEN else to_datetime(row.since),
        counts=counts,
        oldest=to_datetime(ready[0]) if ready else None,
        **({} if row is None else _settings(row)),
    )


def _settings(row: QueueRow) -> dict[str, Any]:
    settings, off = row.settings, row.disabled is not None
    return {
        "max_depth": settings.max_depth or None,
        "on_full": settings.on_full or "error",
        "order": settings.order or "fifo",
        "limits": tuple(name for name, _ in settings.limits or ()),
        "disabled": row.disabled,
        "disabled_since": to_datetime(row.disabled_at) if off else None,
        "disabled_by": row.disabled_by,
    }


def _who() -> str:
    """Who asks, for those who are told."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container that knows no names
        user = "somebody"
    return f"{user}@{platform.node()}"


def _checked(names: Iterable[str]) -> list[str]:
    checked = [checks.queue_name(name, "queue") for name in names]
    if not checked:
        raise InvalidOption("names", (), "must name at least one queue", hint='app.queues.pause("email")')
    return checked
