"""Records what clients ask for and what they are answered, as it happens."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from mainspring import Mainspring
from mainspring.errors import EnqueueError, KeyConflict, StoreError, StoreUnavailable
from mainspring.jobs.call import Call as Asked
from mainspring.jobs.call import PreparedBatch, prepare
from mainspring.jobs.records import Enqueued
from mainspring.testing.history import Answer, ClientCall, Request


class Ledger:
    """Enqueues for its producers. ``calls``, ``requests`` and ``made`` record the results."""

    def __init__(self, app: Mainspring) -> None:
        self.calls: list[ClientCall] = []
        self.requests: list[Request] = []
        self.made: list[PreparedBatch[Any]] = []
        self._app = app

    def enqueue(self, calls: Iterable[Asked[Any]]) -> PreparedBatch[Any]:
        made, began = prepare(self._app, list(calls)), time.time()
        try:
            replies = self._app.client.enqueue_now(made.batch)
        except (StoreError, EnqueueError) as error:
            self._note(made, began, error)
        else:
            self._note(made, began, None, replies)
        return made

    async def aenqueue(self, calls: Iterable[Asked[Any]]) -> None:
        made, began = prepare(self._app, list(calls)), time.time()
        try:
            replies = await self._app.client.enqueue(made.batch)
        except (StoreError, EnqueueError) as error:
            self._note(made, began, error)
        else:
            self._note(made, began, None, replies)

    def cancelled(self, job: str, began: float) -> None:
        self.calls.append(ClientCall(verb="cancel", jobs=(job,), answer="ok", began=began, ended=time.time()))

    def _note(
        self, made: PreparedBatch[Any], began: float, error: Exception | None, replies: Sequence[Enqueued] = ()
    ) -> None:
        ended, own = time.time(), tuple(str(job.id) for job in made.jobs)
        given = tuple(str(UUID(bytes=reply.id)) for reply in replies)
        unknown = isinstance(error, StoreUnavailable)
        answer: Answer = "ok" if error is None else "unknown" if unknown else "failed"
        self.calls.append(ClientCall(verb="enqueue", jobs=given or own, answer=answer, began=began, ended=ended))
        self.made.append(made)
        for job, new in zip(made.batch.jobs, own, strict=True):
            if job.unique is not None and job.unique.keep and (unknown or error is None or type(error) is KeyConflict):
                self.requests.append(
                    Request(
                        key=job.unique.hash.hex(), print=job.unique.print.hex(), made=new, began=began, ended=ended,
                        answer="unknown" if unknown else "ok" if error is None else "refused",
                        job=given[0] if given else "", keep=job.unique.keep / 1e6,
                    )
                )  # fmt: skip
