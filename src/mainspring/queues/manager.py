"""app.queues: inspect, pause, drain and configure queues, for the whole fleet. Every ``x`` has an async ``ax``."""

from __future__ import annotations

import getpass
import logging
import platform
from collections import Counter, defaultdict
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
from mainspring.jobs.known_names import check_queues
from mainspring.jobs.manager import Counts
from mainspring.jobs.query import Query
from mainspring.jobs.records import TallyRow
from mainspring.jobs.why import describe_unserved
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
    """A queue, at the time of the call."""

    name: str
    mode: QueueMode
    since: datetime | None
    """When it was paused or set to drain; None for an open queue."""
    counts: Counts
    """Its live jobs by state."""
    oldest: datetime | None
    """When its oldest ready job was enqueued; None if no job is ready."""
    max_depth: int | None = None
    """The maximum number of waiting jobs; None: no maximum."""
    on_full: OnFull = "error"
    order: Order = "fifo"
    limits: tuple[str, ...] = ()
    """The limits that every new job of the queue names."""
    disabled: DisabledMode | None = None
    """How new jobs are handled, if the queue is disabled."""
    disabled_since: datetime | None = None
    disabled_by: str = ""
    workers: int = 0
    """The number of live workers that serve it."""
    unserved: str = ""
    """A sentence for people, if no live worker serves it, it has ready jobs, and it is neither paused nor disabled."""

    @property
    def depth(self) -> int:
        """The number of waiting jobs."""
        return self.counts.live - self.counts["running"]


QueueInfos = list[QueueInfo]


class Configured(TypedDict, total=False):
    """The settings that can be changed at run time, as in ``app.queue(...)``."""

    max_depth: int | None
    on_full: OnFull
    order: Order


log = logging.getLogger("mainspring.queues")

_CREATE = (
    "app.queues.list(), or mainspring queues ls, shows every queue. For a queue without jobs pass create=True; in a "
    "command, --create."
)


class Queues(Reserved):
    """The queues of the whole fleet. Its mode and settings survive restarts.

    A queue exists if this app, a live worker, a job or a stored setting names it. A method that changes a queue raises
    ``NotFound`` for any other name; with ``create=True`` it changes the queue before its first job.
    """

    _PATH = "app.queues"

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    # ---- read ---------------------------------------------------------------------------------

    async def alist(self) -> QueueInfos:
        """Return every queue that has a live job, has stored settings, or is used by a task of this app; by name."""
        return await self._load(None)

    list = blocking.twin(alist)

    async def aget(self, name: str) -> QueueInfo:
        """Return one queue. A name that was never used returns an open, empty queue."""
        [found] = await self._load(_check_names([name]))
        return found

    get = blocking.twin(aget)

    # ---- change -------------------------------------------------------------------------------

    async def apause(self, *names: str, create: bool = False) -> None:
        """Start no more jobs of these queues, on any worker, until ``resume``. Running jobs continue, new jobs wait."""
        await self._set_mode(names, QueueMode.PAUSED, create)

    pause = blocking.twin(apause)

    async def aresume(self, *names: str) -> None:
        """Open paused or draining queues again. A queue that is also disabled stays disabled, with a warning."""
        await self._set_mode(names, QueueMode.OPEN)
        for row in await (await self._app.client.store()).queues():
            if row.name in names and row.disabled is not None:
                log.warning(
                    "queue %r stays disabled (%s): resume opens paused and draining queues; app.queues.enable(%r), or "
                    "mainspring queues enable, enables it", row.name, row.disabled.value, row.name,
                )  # fmt: skip

    resume = blocking.twin(aresume)

    async def adrain(
        self, name: str, *, wait: bool = False, timeout: Duration | None = None, create: bool = False
    ) -> QueueInfo:
        """Accept no more jobs (``QueueDraining``) and run the jobs that are in the queue, until ``resume``.

        With ``wait`` the call returns when no live job is left; ``DrainTimeout`` after ``timeout``.
        """
        if timeout is not None and not wait:
            raise InvalidOption("timeout", timeout, "works with wait=True only")
        pace = PollPause(timeout)
        await self._set_mode([name], QueueMode.DRAINING, create)
        while (info := await self.aget(name)).counts.live and wait:
            if not await pace.pause():
                raise DrainTimeout(name, pace.limit, info.counts.live)
        return info

    drain = blocking.twin(adrain)

    async def apurge(self, name: str) -> int:
        """Delete the waiting jobs of a queue, in every waiting state. Running jobs stay. Return the number of jobs.

        Jobs of flows are deleted too: the jobs that wait for them are cancelled, and their flows fail.
        """
        query = Query.where(queues=await self._find([name]), states=WAITING)
        return await actions.act(await self._app.client.store(), Action.DELETE, query, purge=True)

    purge = blocking.twin(apurge)

    async def adisable(self, name: str, how: How = "hold", *, create: bool = False) -> None:
        """Start no more jobs of a queue until ``enable``.

        New jobs wait (``hold``), end at once as cancelled with the reason ``skipped`` (``skip``), or are refused with
        ``QueueDisabled`` (``reject``). Jobs that wait already keep waiting.
        """
        if how not in get_args(How):
            raise InvalidOption("how", how, f"must be one of {', '.join(get_args(How))}", subject=f"queue {name!r}")
        queues = await self._find([name], create)
        await (await self._app.client.store()).disable_queues(queues, DisabledMode(how), _current_user())

    disable = blocking.twin(adisable)

    async def aenable(self, *names: str) -> None:
        """Enable disabled queues. A queue that is also paused stays paused."""
        queues = await self._find(names)
        await (await self._app.client.store()).disable_queues(queues, None)

    enable = blocking.twin(aenable)

    async def aconfigure(self, name: str, *, create: bool = False, **settings: Unpack[Configured]) -> QueueInfo:
        """Override the declared settings of a queue, for every producer, from the next enqueue on, until ``reset``.

        Settings that are not named stay. ``max_depth=None`` removes the limit of waiting jobs.
        """
        [queue] = _check_names([name])
        subject = f"queue {queue!r}"
        known = get_type_hints(Configured)
        for given in settings:
            if given not in known:
                raise UnknownOption(subject, given, known)
        if not settings:
            hint = f"app.queues.configure({queue!r}, max_depth=10_000)"
            raise InvalidOption("settings", (), "are empty: give at least one setting", subject=subject, hint=hint)
        resolved = resolve_options("queue", settings, subject=subject)
        changed = {given: resolved[given] or 0 for given in settings}
        store = await self._app.client.store()
        rows = {row.name: row for row in await store.queues()}
        before = rows[queue].given if queue in rows else QueueSettings()
        given_now = msgspec.convert(changed, QueueSettings).over(before)
        code = self._app.tasks.declared_queues.settings.get(queue, QueueSettings())
        holds = given_now.over(rows[queue].declared if queue in rows else QueueSettings()).over(code)
        if settings.get("on_full", "error") != "error" and not holds.max_depth:
            hint = f"app.queues.configure({queue!r}, max_depth=10_000, on_full={settings['on_full']!r})"
            raise InvalidOption("on_full", settings["on_full"], "needs max_depth", subject=subject, hint=hint)
        await self._find([queue], create)
        await store.configure_queue(queue, given_now)
        return await self.aget(queue)

    configure = blocking.twin(aconfigure)

    async def areset(self, name: str, *, declared: bool = False) -> None:
        """Use the settings that the code declares again. ``declared`` also deletes these, if no code declares them."""
        store, [queue] = await self._app.client.store(), await self._find([name])
        await store.configure_queue(queue, None)
        if declared:
            await store.configure_queue(queue, None, declared=True)

    reset = blocking.twin(areset)

    # ---- private ------------------------------------------------------------------------------

    async def _set_mode(self, names: Iterable[str], mode: QueueMode, create: bool = False) -> None:
        queues = await self._find(names, create)
        await (await self._app.client.store()).set_queue_mode(queues, mode)

    async def _find(self, names: Iterable[str], create: bool = False) -> Sequence[str]:
        """The checked names of queues that exist, or that may be new."""
        queues = _check_names(names)
        if create:
            return queues
        await check_queues(self._app, queues, hint=_CREATE)
        return queues

    async def _load(self, names: Sequence[str] | None) -> QueueInfos:
        store = await self._app.client.store()
        modes = {row.name: row for row in await store.queues()}
        tallies: dict[str, list[TallyRow]] = defaultdict(list)
        for tally in await store.tally(Query.where(queues=names, states=LIVE), "queue"):
            tallies[tally.value].append(tally)
        workers, now = await store.workers(), await store.now()
        served = Counter(queue for each in workers if not each.is_silent(now) for queue in each.queues)
        if names is None:
            names = sorted({*tallies, *modes, *self._app.tasks.queues()})
        return [_build_info(name, modes.get(name), tallies.get(name, []), served) for name in names]


def _build_info(name: str, row: QueueRow | None, tallies: list[TallyRow], served: Counter[str]) -> QueueInfo:
    """``served`` counts the live workers of each queue."""
    counts = Counts(dict.fromkeys(State, 0))
    counts.update({tally.state: tally.count for tally in tallies})
    ready = [tally.first for tally in tallies if tally.state is State.READY]
    waits = bool(ready) and not served[name] and (row is None or not row.closed)
    return QueueInfo(
        name=name,
        mode=QueueMode.OPEN if row is None else row.mode,
        since=None if row is None or row.mode is QueueMode.OPEN else to_datetime(row.since),
        counts=counts,
        oldest=to_datetime(ready[0]) if ready else None,
        workers=served[name],
        unserved=describe_unserved(name, served, counts[State.READY]) if waits else "",
        **({} if row is None else _read_settings(row)),
    )


def _read_settings(row: QueueRow) -> dict[str, Any]:
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


def _current_user() -> str:
    """Return ``user@host`` of this process, shown as ``disabled_by``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no user database
        user = "unknown"
    return f"{user}@{platform.node()}"


def _check_names(names: Iterable[str]) -> list[str]:
    checked = [checks.queue_name(name, "queue") for name in names]
    if not checked:
        raise InvalidOption("names", (), "are missing: name at least one queue", hint='app.queues.pause("email")')
    return checked
