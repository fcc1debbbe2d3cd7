"""Three producers, each in its own way: single jobs, bulk, and many at once on an event loop.

Each writes down what it asked for and what it was told.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mainspring import Mainspring
from mainspring.batches import Made, batch_of
from mainspring.call import Call as Asked
from mainspring.errors import StoreError, StoreUnavailable
from mainspring.job import Job
from mainspring.testing.history import Answer, Call
from tests.processes.mixed import Mixed

LONG = 2.0
"""Seconds of the jobs that a fault is meant to hit."""
BULK_EVERY = 0.5
ONE_EVERY = 0.1
MANY_EVERY = 0.5


class Producers:
    """They work from ``start`` to ``stop``; ``calls`` and ``made`` tell what they did."""

    def __init__(self, url: str, folder: Path) -> None:
        self.calls: list[Call] = []
        self.made: list[Made[Any]] = []
        self._app = Mainspring(url)
        self._mixed = Mixed(self._app)
        self._folder = folder
        self._stopping = threading.Event()
        self._uncancelled: list[Job[Any]] = []
        ways: tuple[Callable[[], None], ...] = (self._one_by_one, self._in_bulk, self._many_at_once)
        self._threads = [threading.Thread(target=way, name=way.__name__) for way in ways]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """No more jobs; those that only a cancel ends are cancelled."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        while self._uncancelled:
            self._cancel()

    def close(self) -> None:
        self._stopping.set()
        self._app.close()

    # ---- the three ways ---------------------------------------------------------------------

    def _one_by_one(self) -> None:
        for n in itertools.count():
            task = self._mixed.good if n % 2 else self._mixed.thread
            self._enqueue([task.s(0.05)])
            if self._stopping.wait(ONE_EVERY):
                return

    def _in_bulk(self) -> None:
        for n in itertools.count():
            calls = self._mixed.calls(str(self._folder / f"snoozed{n}"), seconds=0.3)
            calls += [self._mixed.good.s(LONG), self._mixed.thread.s(LONG)]
            self._uncancelled.append(self._enqueue(calls).jobs[0])
            self._cancel()
            if self._stopping.wait(BULK_EVERY):
                return

    def _many_at_once(self) -> None:
        asyncio.run(self._many())

    async def _many(self) -> None:
        while not self._stopping.is_set():
            await asyncio.gather(*(self._aenqueue([self._mixed.good.s(0.1)]) for _ in range(5)))
            await asyncio.sleep(MANY_EVERY)
        await self._app.aclose()

    # ---- one call ---------------------------------------------------------------------------

    def _enqueue(self, calls: Iterable[Asked[Any]]) -> Made[Any]:
        made, began = batch_of(self._app, calls, None), time.time()
        try:
            self._app.client.enqueue_now(made.batch)
        except StoreError as error:
            self._note(made, began, error)
        else:
            self._note(made, began)
        return made

    async def _aenqueue(self, calls: Iterable[Asked[Any]]) -> None:
        made, began = batch_of(self._app, calls, None), time.time()
        try:
            await self._app.client.enqueue(made.batch)
        except StoreError as error:
            self._note(made, began, error)
        else:
            self._note(made, began)

    def _note(self, made: Made[Any], began: float, error: StoreError | None = None) -> None:
        answer: Answer = "ok" if error is None else "unknown" if isinstance(error, StoreUnavailable) else "failed"
        ids = tuple(str(job.id) for job in made.jobs)
        self.calls.append(Call(verb="enqueue", jobs=ids, answer=answer, began=began, ended=time.time()))
        self.made.append(made)

    def _cancel(self) -> None:
        """Cancel the jobs that nothing else ends; what the store did not answer is asked again."""
        for job in tuple(self._uncancelled):
            began = time.time()
            try:
                done = job.cancel()
            except StoreError:
                continue
            self._uncancelled.remove(job)
            if done:
                call = Call(verb="cancel", jobs=(str(job.id),), answer="ok", began=began, ended=time.time())
                self.calls.append(call)
