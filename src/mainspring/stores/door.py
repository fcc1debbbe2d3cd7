"""The one door to a store: every call of a store passes through :class:`Door`.

The door sets the total deadline of a call, translates the errors of the driver and has the failpoints. An engine behind
the door has data access only. The door asks the engine to ``translate`` an error that the engine raised; an error that
the engine does not know is raised unchanged: it is a bug, or it came from outside and interrupted the call (a time
limit of the job, a signal handler of the program). So engines translate errors of their own driver only.

The methods of the door are made from the contract: each async method of :class:`~mainspring.stores.base.Store` becomes
one method of ``Door`` with the same signature and docstring. A method that is new in the contract needs no change here.
Three methods differ: ``enqueue_now`` blocks, so its caller sets the deadline (``blocking_deadline``); ``enqueue`` and
``migrate`` have deadlines of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from mainspring.common import failpoints
from mainspring.errors import StoreError, StoreUnavailable
from mainspring.jobs.records import Enqueued, JobBatch
from mainspring.stores.base import Engine, Store
from mainspring.stores.records import Document
from mainspring.stores.shared.deadlines import CallDeadlines, DeadlinePassed

MIGRATION = 3600.0
"""Seconds that a migration may take: it may rewrite large tables, and wait for other processes."""

DEADLINES: Mapping[str, CallDeadlines] = {"migrate": CallDeadlines(MIGRATION)}
"""The methods whose deadline is not that of the door."""


class Door(Store):
    """A :class:`~mainspring.stores.base.Store` around an engine.

    ``deadline`` is the time in seconds that a call may take in total, ``enqueue_deadline`` that of an enqueue. A call
    that takes longer raises ``StoreUnavailable``.
    """

    def __init__(self, inner: Engine, *, deadline: float = 10.0, enqueue_deadline: float | None = None) -> None:
        self.inner = inner
        self.engine = inner.engine
        self.url = inner.url
        self.deadline = deadline
        if enqueue_deadline is not None:
            self._enqueue_deadlines = CallDeadlines(enqueue_deadline)

    @property
    def deadline(self) -> float:
        """Seconds that a call may take."""
        return self._deadlines.seconds

    @deadline.setter
    def deadline(self, seconds: float) -> None:
        self._deadlines = self._enqueue_deadlines = CallDeadlines(seconds)

    def enqueue_now(self, batch: JobBatch, connection: Any = None) -> list[Enqueued]:
        failpoints.hit("enqueue.before")
        try:
            done = self.inner.enqueue_now(batch, connection)
        except Exception as error:
            raise self._translated(error) from error
        failpoints.hit("enqueue.after")
        return done

    def documents_now(self, kind: str) -> list[Document]:
        try:
            return self.inner.documents_now(kind)
        except Exception as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, StoreError):
            return error
        return self.inner.translate(error) or error

    def _late(self, name: str, seconds: float) -> StoreUnavailable:
        return StoreUnavailable(
            f"{name}: {self.url} gave no answer in {seconds:g} s",
            hint="Whether it took effect is unknown; Mainspring repeats the call in a way that is safe.",
        )


def contract_methods() -> dict[str, Callable[..., Awaitable[Any]]]:
    """The async methods of the contract, by name."""
    return {name: method for name, method in vars(Store).items() if iscoroutinefunction(method)}


def _make_method(name: str, contract: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """The method of the door for a method of the contract: the only implementation of a call."""
    before, after = f"{name}.before", f"{name}.after"
    own = DEADLINES.get(name)
    enqueues = name == "enqueue"

    @wraps(contract)
    async def call(self: Door, *args: Any, **options: Any) -> Any:
        failpoints.hit(before)
        deadlines = own or (self._enqueue_deadlines if enqueues else self._deadlines)
        try:
            with deadlines.begin():
                reply = await getattr(self.inner, name)(*args, **options)
        except DeadlinePassed as late:
            raise self._late(name, deadlines.seconds) from late
        except Exception as error:
            raise self._translated(error) from error
        failpoints.hit(after)
        return reply

    call.__qualname__ = f"{Door.__name__}.{name}"
    call.__module__ = __name__
    return call


for _name, _contract in contract_methods().items():
    setattr(Door, _name, _make_method(_name, _contract))
