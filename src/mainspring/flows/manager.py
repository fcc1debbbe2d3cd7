"""``app.flows``: open batches; list, show, cancel and retry flows."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from mainspring.client import blocking
from mainspring.common.duration import Duration, to_us
from mainspring.common.handles import Reserved
from mainspring.common.ids import parse_id, raw_id
from mainspring.errors import InvalidOption, NotFound
from mainspring.flows.batch import CALLBACKS, Batch, callback_call
from mainspring.flows.graph import FlowGraph, build_graph
from mainspring.flows.info import FlowInfo, FlowState, build_flow, read_flow
from mainspring.flows.results import rows_of
from mainspring.flows.retry import retry_flow
from mainspring.flows.settings import flow_options
from mainspring.flows.shape import ROOT_TASK
from mainspring.jobs.job import Job
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBody, JobRow
from mainspring.states import Action

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.keys import Key
    from mainspring.stores.base import Store

_FOUND_BY: dict[str, dict[str, str]] = {
    "running": {"state": "blocked"}, "succeeded": {"state": "succeeded"},
    "failed": {"state": "cancelled", "reason": "parent"}, "cancelled": {"state": "cancelled", "reason": "by_user"},
    "expired": {"state": "cancelled", "reason": "expired"},
}  # fmt: skip
"""The state and the reason of the root, by the state of the flow."""

_decode_body = msgspec.json.Decoder(JobBody).decode


class Flows(Reserved):
    """Flows and batches of the store. Every method ``x`` has an async version ``ax``."""

    __slots__ = ("_app",)
    _PATH = "app.flows"

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    # ---- batches ------------------------------------------------------------------------------

    def batch(
        self, description: str = "", *, on_success: Any = None, on_finished: Any = None, on_dead: Any = None,
        key: str | Key | None = None, hold: Duration = "24h", time_limit: Duration | None = None, tags: Any = (),
    ) -> Batch:  # fmt: skip
        """An open set of jobs: add jobs with ``batch.add(task.s(...))``, then ``close()`` it, or use it with ``with``.

        When all members have ended, ``on_success`` runs if all succeeded, and ``on_finished`` in any case. ``on_dead``
        runs as soon as the first member is dead. Each is a call, or a task that takes the id of the batch, and runs
        once. A batch that is not closed within ``hold`` fails. With ``key``, an open batch with this key is
        continued: so a producer that was killed can go on.
        """
        id = raw_id()
        given = {"name": description or None, "key": key, "time_limit": time_limit, "tags": tags or None}
        settings = flow_options(given)
        settings["hold"] = to_us(hold, what="hold")
        if settings["hold"] <= 0:
            raise InvalidOption("hold", hold, "must be greater than zero", subject="app.flows.batch")
        for option, wanted in zip(CALLBACKS, (on_success, on_finished, on_dead), strict=True):
            if wanted is not None:
                settings[option] = callback_call(self._app, wanted, option, UUID(bytes=id))
        return Batch(self._app, id, settings, exists=False)

    def batch_of(self, id: UUID | str) -> Batch:
        """The handle of a batch with this id; does not read the store."""
        return Batch(self._app, parse_id(id).bytes, {}, exists=True)

    # ---- look ---------------------------------------------------------------------------------

    async def alist(
        self, *, state: FlowState | None = None, tag: str | None = None, since: datetime | Duration | None = None,
        limit: int = 100,
    ) -> list[FlowInfo]:  # fmt: skip
        """The newest flows, without their nodes."""
        if state is not None and state not in _FOUND_BY:
            raise InvalidOption("state", state, f"must be one of {', '.join(_FOUND_BY)}", subject="app.flows.list")
        given = {"task": ROOT_TASK, "tag": tag, "since": since, **_FOUND_BY.get(state or "", {})}
        store = await self._app.client.store()
        query = Query.build("app.flows.list", given, await store.now())
        page = await store.find(query, limit=limit)
        return [build_flow(row) for row in page.jobs]

    list = blocking.twin(alist)

    async def aget(self, id: UUID | str) -> FlowInfo:
        """The flow with this id, or the flow of the job with this id: its state, counts and nodes."""
        store = await self._app.client.store()
        return await read_flow(store, await self._root(store, id))

    get = blocking.twin(aget)

    async def ajoin(self, id: UUID | str, timeout: Duration | None = None) -> FlowInfo:
        """Wait until the flow has ended, with its compensations, and return it. ``ResultTimeout`` after ``timeout``.

        ``job.result()`` waits for the last job of a flow, which ends before the compensations.
        """
        root = await self._root(await self._app.client.store(), id)
        await Job(root.id, ROOT_TASK, self._app.client, lambda _: None).ajoin(timeout)
        return await self.aget(UUID(bytes=root.id))

    join = blocking.twin(ajoin)

    async def agraph(self, id: UUID | str) -> FlowGraph:
        """The flow as a graph: nodes and edges as data, ``.mermaid()`` and ``.dot()``."""
        return build_graph(await self.aget(id))

    graph = blocking.twin(agraph)

    # ---- change -------------------------------------------------------------------------------

    async def acancel(self, id: UUID | str, reason: str = "") -> bool:
        """Cancel the flow: no waiting job of it starts, and running jobs get the order to end.

        Returns False if the flow has ended already. The jobs are cancelled in slices, by this call and by the services
        of the fleet. Compensations do not run.
        """
        store = await self._app.client.store()
        root = await self._root(store, id)
        done = await store.act(Action.CANCEL, Query(ids=(root.id,)), reason=reason)
        if not done.done:
            return False
        while (said := await store.promote()).next_due is not None and said.next_due <= said.now:
            pass
        return True

    cancel = blocking.twin(acancel)

    async def aretry(self, id: UUID | str) -> int:
        """Run a flow that has failed again from where it failed: the jobs that did not succeed run again.

        Jobs that succeeded keep their results. Returns how many jobs wait or run again. ``WrongState`` while the flow
        is open or if it has succeeded, and if its compensations have run: enqueue such a flow anew.

        More than 1,000 jobs are retried in slices. If the program is killed in between, call it again: it goes on, and
        retries no job twice. Until then the flow does not end; after an hour it fails again.
        """
        store = await self._app.client.store()
        root = await self._root(store, id)
        return await retry_flow(self._app, store, root)

    retry = blocking.twin(aretry)

    async def adelete(self, id: UUID | str) -> None:
        """Delete the flow with all of its jobs; jobs that run are cancelled first."""
        store = await self._app.client.store()
        root = await self._root(store, id)
        await store.act(Action.DELETE, Query(ids=(root.id,)))
        while (said := await store.promote()).next_due is not None and said.next_due <= said.now:
            pass

    delete = blocking.twin(adelete)

    # ---- private ------------------------------------------------------------------------------

    async def _root(self, store: Store, id: UUID | str) -> JobRow:
        """The root of the flow with this id, or of the flow that the job belongs to."""
        wanted = parse_id(id)
        found = (await rows_of(store, [wanted.bytes])).get(wanted.bytes)
        body = None if found is None else _decode_body(found.record)
        if body is not None and body.flow is not None and found is not None:
            if found.task == ROOT_TASK:
                return found
            root = bytes.fromhex(body.flow)
            if (row := (await rows_of(store, [root])).get(root)) is not None:
                return row
        raise NotFound(
            "flow", str(wanted), hint="app.flows.list() shows the flows; a job that is no part of a flow has none."
        )
