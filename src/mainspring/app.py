"""Mainspring: the object a user builds. It declares and points; behaviour lives in what it points to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from mainspring import options, sync
from mainspring.call import Call, Target
from mainspring.client import Client
from mainspring.errors import InvalidOption, NotBuilt, did_you_mean
from mainspring.job import Job
from mainspring.registry import Registry
from mainspring.settings import AppSettings
from mainspring.stores.base import Batch
from mainspring.task import AsyncTask, BaseTask, Task

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, Unpack

    from mainspring.embedded import EmbeddedWorker
    from mainspring.options import TaskOptions, WorkerOptions
    from mainspring.settings import Settings
    from mainspring.worker.context import AsyncContext, Context
    from mainspring.worker.parts import Parts

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

# Names of the public API that are reserved, and refused until they work.
LATER = frozenset({
    "asgi", "wsgi", "batch", "breaker", "breakers", "bulk_task", "dead", "election", "emit", "aemit", "events", "flows",
    "include", "jobs", "limiter", "limits", "lock", "locks", "metrics", "middleware", "on", "pipeline", "pool", "queue",
    "queues", "schedule", "schedules", "semaphore", "test", "workers",
})  # fmt: skip


class TaskDecorator(Protocol):
    """What ``@app.task(...)`` with options is."""

    # A coroutine function is a function that returns a coroutine: the overloads overlap and the first wins, as meant.
    @overload
    def __call__(  # type: ignore[overload-overlap]  # see above
        self, fn: Callable[Concatenate[AsyncContext, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # see above
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


class Mainspring:
    """Background work on one store.

    ``url`` is a SQLite, PostgreSQL or Redis URL; without one it is ``$MAINSPRING_URL``, else a SQLite
    file beside the project's ``mainspring.toml`` or ``pyproject.toml``. ``include`` names modules with
    tasks, imported by workers and by calls by name on first use. Nothing is opened here.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "default",
        include: Sequence[str] = (),
        version: str | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        caller = sys._getframe(1)  # noqa: SLF001  # the store's file lies beside the project of whoever declares the app
        while caller.f_back is not None and caller.f_locals.get("self") is self:  # the constructor of a subclass
            caller = caller.f_back
        declared_in = caller.f_globals.get("__file__")
        self.settings = AppSettings.resolve(url, namespace, version, settings, declared_in)
        self.tasks = Registry(include)
        self._client: Client | None = None
        self._lifespans: list[Callable[..., Any]] = []

    # ---- declare ------------------------------------------------------------------------------

    @overload
    def task(  # type: ignore[overload-overlap]  # as in TaskDecorator
        self, fn: Callable[Concatenate[AsyncContext, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(  # type: ignore[overload-overlap]  # as in TaskDecorator
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, **o: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(self, fn: Any = None, **o: Any) -> Any:
        """Make a function a task: ``@app.task`` or ``@app.task(queue="email", retries=3)``.

        ``async def`` runs on the worker's event loop, ``def`` in a thread. A first parameter that is
        annotated ``Context`` or ``AsyncContext`` gets the context of the job and is no argument of it.
        """
        return self._declare(fn, o) if fn is not None else lambda fn: self._declare(fn, o)

    def lifespan(self, fn: F) -> F:
        """Run a generator once around the jobs of each worker process; what it yields is ``ctx.state``.

        Several are started in the order of their declaration and ended in reverse.
        """
        self._lifespans.append(fn)
        return fn

    # ---- do -----------------------------------------------------------------------------------

    def call(self, task: str, /, *args: Any, **kwargs: Any) -> Call[Any]:
        """A call by the name of its task, which need not be importable here.

        Of a task that is not known here only plain JSON values can be checked; it goes to the queue
        ``default`` unless ``.options(queue=...)`` says otherwise.
        """
        known = self.tasks.find(task)
        if known is not None:
            call: Call[Any] = known.s(*args, **kwargs)
            return call
        from mainspring.codec import dumps_call, loads

        unknown = Target(task, "any", options.resolve("task", {}, subject=f"task {task!r}"), loads)
        return Call(self, unknown, dumps_call(task, args, kwargs), {})

    def enqueue_many(self, calls: Iterable[Call[R]], *, connection: Any = None) -> list[Job[R]]:
        """Enqueue these calls in this order: all of them, or none when one cannot be."""
        if sync.in_loop():
            sync.warn_blocking("enqueue")
        batch, jobs, connection = self._batch(calls, connection)
        if batch.jobs:
            self.client.enqueue_now(batch, connection)
        return jobs

    def enqueue_one(self, call: Call[R]) -> Job[R]:
        """What ``call.enqueue()`` does; the same as a batch of one, without the making of one."""
        if sync.in_loop():
            sync.warn_blocking("enqueue")
        client = self.client
        new, job = call.new_job(self.settings.version, client)
        client.enqueue_now(Batch(id=new.id, jobs=(new,)), call.connection)
        return job

    async def aenqueue_many(self, calls: Iterable[Call[R]], *, connection: Any = None) -> list[Job[R]]:
        batch, jobs, connection = self._batch(calls, connection)
        if connection is not None:
            self.client.enqueue_now(batch, connection)  # one insert in the caller's own transaction
        elif batch.jobs:
            await self.client.enqueue(batch)
        return jobs

    # ---- run ----------------------------------------------------------------------------------

    def run(self, **o: Unpack[WorkerOptions]) -> int:
        """Run workers until told to stop: a supervisor here, workers in child processes. Owns the signals.

        Returns the exit code: 0 when everything finished. Put it under ``if __name__ == "__main__":``.
        """
        from mainspring.running import run

        options.resolve("worker", o, subject="app.run")
        return run(self, dict(o))

    def worker(self, **o: Unpack[WorkerOptions]) -> EmbeddedWorker:
        """A worker inside this process, for ``with`` and ``async with``: a thread, no signals."""
        from mainspring.embedded import EmbeddedWorker

        return EmbeddedWorker(self.parts(**o))

    def parts(self, **o: Unpack[WorkerOptions]) -> Parts:
        """What a worker of this app is made of; imports every included module."""
        return self.settings.parts(self.tasks, tuple(self._lifespans), o)

    def open(self) -> Self:
        """Open the store now instead of at the first use, to see early whether it can be reached."""
        sync.run("app.open", self.client.store())
        return self

    async def aopen(self) -> Self:
        await self.client.store()
        return self

    def close(self) -> None:
        """Let go of the store. The next use opens it anew."""
        sync.run("app.close", self.client.close())

    async def aclose(self) -> None:
        await self.client.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await self.aopen()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.aclose()

    # ---- inspect ------------------------------------------------------------------------------

    @property
    def client(self) -> Client:
        """The way to the store; opens nothing by itself."""
        if self._client is None:
            self._client = Client(self.settings.address)
        return self._client

    def import_included(self) -> None:
        self.tasks.import_included()

    def __repr__(self) -> str:
        return f"<Mainspring {self.settings.shown_url}>"

    if not TYPE_CHECKING:  # a type checker must not believe that every name is there

        def __getattr__(self, name: str) -> Any:
            if name in LATER:
                raise NotBuilt("Mainspring", name)
            known = [each for each in dir(type(self)) if not each.startswith("_")]
            raise AttributeError(f"'Mainspring' object has no attribute {name!r}{did_you_mean(name, known)}")

    # ---- private ------------------------------------------------------------------------------

    def _declare(self, fn: Callable[..., Any], given: dict[str, Any]) -> BaseTask[Any, Any]:
        from inspect import iscoroutinefunction

        subject = f"task {getattr(fn, '__qualname__', fn)!r}"
        resolved = options.resolve("task", given, subject=subject)
        is_async = iscoroutinefunction(fn)
        kind = resolved["executor"] or ("async" if is_async else "thread")
        if (kind == "async") is not is_async:
            raise InvalidOption(
                "executor", kind, f"does not fit a {'coroutine function' if is_async else 'plain function'}",
                subject=subject, hint="async def runs on the event loop, def in a thread: leave executor out.",
            )  # fmt: skip
        made: type[BaseTask[Any, Any]] = AsyncTask if is_async else Task
        task = made(self, fn, kind, resolved)
        self.tasks.add(task)
        return task

    def _batch(self, calls: Iterable[Call[R]], connection: Any) -> tuple[Batch, list[Job[R]], Any]:
        from mainspring.ids import new_id

        pairs = []
        connections = {} if connection is None else {id(connection): connection}
        version, client = self.settings.version, self.client
        for call in calls:
            if call.app is not self:
                raise InvalidOption(
                    "calls", call, "is a call of another app", subject="enqueue_many",
                    hint="One enqueue goes into one store: enqueue it through its own app.",
                )  # fmt: skip
            pairs.append(call.new_job(version, client))
            given = call.connection
            if connection is None or given is not None:
                connections[id(given)] = given
        if len(connections) > 1:
            raise InvalidOption(
                "connection", f"{len(connections)} of them", "must be the same for all calls", subject="enqueue_many",
                hint="They are enqueued all or none, so in one transaction: enqueue_many(calls, connection=...).",
            )  # fmt: skip
        connection = next(iter(connections.values()), None)
        batch = Batch(id=new_id().bytes, jobs=tuple([new for new, _ in pairs]))
        return batch, [job for _, job in pairs], connection
