"""Mainspring: the object a user builds. It declares and points; behaviour lives in what it points to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.client import blocking
from mainspring.client.client import Client
from mainspring.errors import InvalidOption, KeyConflict, KeyTaken, NotBuilt, did_you_mean
from mainspring.jobs.batch import batch_of, found, through
from mainspring.jobs.call import Call
from mainspring.jobs.job import Job
from mainspring.jobs.new_job import CallTarget
from mainspring.jobs.records import Batch
from mainspring.locks.app_locks import LockDeclarations
from mainspring.options import checks
from mainspring.options.table import resolve_options
from mainspring.queues.queue import Queue
from mainspring.settings.settings import AppSettings
from mainspring.tasks import naming
from mainspring.tasks.declaration import TaskHome
from mainspring.tasks.decorators import TaskDecorators
from mainspring.tasks.hooks import Hooks
from mainspring.tasks.middleware import Middleware
from mainspring.tasks.registry import Registry
from mainspring.tasks.task import BaseTask, declare

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, Unpack

    from mainspring.breakers.breaker import Breaker
    from mainspring.breakers.manager import Breakers
    from mainspring.jobs.dead import Dead
    from mainspring.jobs.manager import Jobs
    from mainspring.launch.embedded import EmbeddedWorker
    from mainspring.limits.declare import Concurrency, Rate
    from mainspring.limits.limiter import Limiter
    from mainspring.limits.manager import Limits
    from mainspring.limits.records import Limit
    from mainspring.options.table import BreakerOptions, QueueOptions, WorkerOptions
    from mainspring.queues.manager import Queues
    from mainspring.schedules.declare import Declaration
    from mainspring.schedules.manager import Schedules
    from mainspring.settings.settings import Settings
    from mainspring.tasks.decorators import Tasks
    from mainspring.tasks.events import (
        BreakerEvent,
        BreakerEventName,
        Event,
        EventName,
        ScheduleEvent,
        ScheduleEventName,
    )
    from mainspring.testing.app import TestApp, TestOptions
    from mainspring.worker.config import WorkerConfig
    from mainspring.worker.manager import Workers

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound="Callable[[Event], Any] | Callable[[BreakerEvent], Any] | Callable[[ScheduleEvent], Any]")

# Names of the public API that are reserved, and refused until they work.
LATER = frozenset({
    "asgi", "wsgi", "batch", "emit", "aemit", "events", "flows", "metrics", "pipeline", "pool",
})  # fmt: skip


class Mainspring(TaskDecorators, LockDeclarations):
    """Background work on one store.

    ``url`` is a SQLite, PostgreSQL or Redis URL; without one it is a SQLite file beside the project's
    ``mainspring.toml`` or ``pyproject.toml``. ``include`` names modules with tasks, imported by workers
    and by calls by name on first use. What is not given here may come from the environment
    (``MAINSPRING_URL``) or from that file, which are read on first use. Nothing is opened here.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        include: Sequence[str] = (),
        version: str | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        caller = sys._getframe(1)  # noqa: SLF001  # the store's file lies beside the project of whoever declares the app
        while caller.f_back is not None and caller.f_locals.get("self") is self:  # the constructor of a subclass
            caller = caller.f_back
        declared_in = naming.file_of(caller.f_globals)
        own = {"url": url, "namespace": namespace, "include": include or None, "version": version}
        given = {**settings, **{name: value for name, value in own.items() if value is not None}}
        self.settings = AppSettings(given, declared_in)
        self.tasks = Registry(lambda: self.settings.include, lambda: self.settings.routes)
        self.hooks = Hooks()
        self._client: Client | None = None
        self._lifespans: list[Callable[..., Any]] = []
        self._middleware: list[Middleware] = []
        self._on_enqueue: list[Middleware] = []
        self._limiters: dict[str, tuple[Limit, ...]] = {}
        self._breakers: dict[str, Limit] = {}
        self._semaphores = {}

    # ---- declare ------------------------------------------------------------------------------

    def lifespan(self, fn: F) -> F:
        """Run a generator once around the jobs of each worker process; what it yields is ``ctx.state``.

        Several are started in the order of their declaration and ended in reverse.
        """
        self._lifespans.append(fn)
        return fn

    def include(self, *tasks: Tasks | str) -> None:
        """Take over the tasks of a library's ``Tasks()``, or import a module of that name on first need."""
        for each in tasks:
            self.tasks.include(self, each)

    def queue(self, name: str, **o: Unpack[QueueOptions]) -> Queue:
        """Declare a queue: ``app.queue("premium", weight=5)``. Workers without ``queues=`` serve it too.

        What it returns may be given as ``queue=``. How many jobs may wait in it, their order and their limits are
        stored by the first enqueue and by workers that start, and obeyed by every producer; ``app.queues.configure``
        sets others over them.
        """
        resolved = resolve_options("queue", o, subject=f"queue {name!r}")
        return self.tasks.add_queue(Queue(checks.queue_name(name, "queue"), resolved))

    def limiter(self, name: str, *limits: Rate | Concurrency) -> Limiter:
        """Limits under a name, for tasks (``limit=``) and for any code (``with``, ``async with``)."""
        from mainspring.limits.limiter import Limiter

        return Limiter(self, name, limits).told_to(self._limiters)

    def breaker(self, name: str, **o: Unpack[BreakerOptions]) -> Breaker:
        """What stops tasks (``breaker=``) and any code (``with``, ``async with``, decorator) that fails and fails."""
        from mainspring.breakers.breaker import Breaker
        from mainspring.breakers.declare import guarded

        made = Breaker(self, guarded(checks.some_task_name(name, "name"), o, f"breaker {name!r}"))
        return made.told_to(self._breakers)

    def on(
        self, *events: EventName | BreakerEventName | ScheduleEventName, task: str | None = None
    ) -> Callable[[H], H]:
        """Tell a function what happened to jobs: ``@app.on("dead")``, ``@app.on("failed", "dead", task="shop.*")``.

        It takes an ``Event`` and runs in the worker that stored what happened, at most once; what it
        raises is logged. What must not be lost is a follow-up job: ``on_dead=`` and its siblings.
        Of a breaker (``@app.on("breaker_opened")``) it takes a ``BreakerEvent``, of a schedule
        (``@app.on("schedule_disabled")``) a ``ScheduleEvent``.
        """
        self.hooks.check(events, task)

        def add(fn: H) -> H:
            self.hooks.add(events, fn, task)
            return fn

        return add

    def middleware(self, m: Middleware) -> None:
        """Wrap every enqueue and every run; the first one added is the outermost."""
        if not isinstance(m, Middleware):
            raise InvalidOption("middleware", m, "is not a Middleware", hint="Derive it from mainspring.Middleware.")
        m.check()
        self._middleware.append(m)
        if type(m).enqueue is not Middleware.enqueue:
            self._on_enqueue.append(m)

    # ---- do -----------------------------------------------------------------------------------

    def call(self, task: str, /, *args: Any, **kwargs: Any) -> Call[Any]:
        """A call by the name of its task, which need not be importable here.

        Of a task that is not known here only plain JSON values can be checked; it goes to the queue that
        the routes name, else ``default``, unless ``.options(queue=...)`` says otherwise.
        """
        known = self.tasks.find(task) if isinstance(task, str) else None
        if known is not None:
            call: Call[Any] = known.s(*args, **kwargs)
            return call
        from mainspring.codec import dumps_call, loads

        checks.some_task_name(task, "task")
        resolved = resolve_options("task", {}, subject=f"task {task!r}")
        queue = self.settings.routes.queue_for(task, resolved["queue"])
        arguments = dumps_call(task, args, kwargs, limit=self.settings.payload_limit)
        return Call(self, CallTarget.of(task, "any", resolved, loads, queue), arguments, {})

    def enqueue_many(self, calls: Iterable[Call[R]], *, connection: Any = None) -> list[Job[R]]:
        """Enqueue these calls in this order: all of them, or none when one cannot be."""
        if blocking.in_loop():
            blocking.warn_blocking("enqueue")
        made = batch_of(self, calls, connection)
        if not made.jobs:
            return []
        try:
            return made.answered(self.client.enqueue_now(made.batch, made.connection))
        except (KeyTaken, KeyConflict) as error:
            raise made.explained(error) from None

    def enqueue_one(self, call: Call[R]) -> Job[R]:
        """What ``call.enqueue()`` does; the same as a batch of one, without the making of one."""
        if blocking.in_loop():
            blocking.warn_blocking("enqueue")
        if self._on_enqueue:
            call = self.through(call)
        client = self.client
        new, job = call.new_job(self.settings.version, client)
        batch = self.tasks.declared_queues.told(Batch(id=new.id, jobs=(new,), limits=call.limits))
        replies = client.enqueue_now(batch, call.connection)
        return job if new.unique is None else found(job, replies[0])

    async def aenqueue_one(self, call: Call[R]) -> Job[R]:
        if self._on_enqueue:
            call = self.through(call)
        client = self.client
        new, job = call.new_job(self.settings.version, client)
        batch = self.tasks.declared_queues.told(Batch(id=new.id, jobs=(new,), limits=call.limits))
        connection = call.connection
        if connection is not None:  # one insert in the caller's own transaction
            replies = client.enqueue_now(batch, connection)
        else:
            replies = await client.enqueue(batch)
        return job if new.unique is None else found(job, replies[0])

    async def aenqueue_many(self, calls: Iterable[Call[R]], *, connection: Any = None) -> list[Job[R]]:
        made = batch_of(self, calls, connection)
        if not made.jobs:
            return []
        try:
            if made.connection is not None:  # one insert in the caller's own transaction
                return made.answered(self.client.enqueue_now(made.batch, made.connection))
            return made.answered(await self.client.enqueue(made.batch))
        except (KeyTaken, KeyConflict) as error:
            raise made.explained(error) from None

    def through(self, call: Call[R]) -> Call[R]:
        """The call as every middleware wants it, the outermost first."""
        for each in self._on_enqueue:
            call = through(each, call)
        return call

    # ---- point to -----------------------------------------------------------------------------

    @property
    def jobs(self) -> Jobs:
        """Find, count, cancel, retry and delete jobs, many at once."""
        from mainspring.jobs.manager import Jobs

        return Jobs(self)

    @property
    def dead(self) -> Dead:
        """The dead letters."""
        from mainspring.jobs.dead import Dead

        return Dead(self)

    @property
    def queues(self) -> Queues:
        """Pause, resume, drain and purge queues, for the whole fleet."""
        from mainspring.queues.manager import Queues

        return Queues(self)

    @property
    def schedules(self) -> Schedules:
        """Schedules: put, list, enable, disable, trigger, backfill, for the whole fleet."""
        from mainspring.schedules.manager import Schedules

        return Schedules(self)

    @property
    def limits(self) -> Limits:
        """What is limited, and by how much: see it and change it, for the whole fleet."""
        from mainspring.limits.manager import Limits

        return Limits(self)

    @property
    def breakers(self) -> Breakers:
        """Breakers: see how they stand, open and close them by hand, for the whole fleet."""
        from mainspring.breakers.manager import Breakers

        return Breakers(self)

    @property
    def workers(self) -> Workers:
        """Who is at work."""
        from mainspring.worker.manager import Workers

        return Workers(self)

    # ---- run ----------------------------------------------------------------------------------

    def test(self, **o: Unpack[TestOptions]) -> TestApp:
        """A private store with a movable clock in place of this app's own, for ``with`` and ``async with``."""
        from mainspring.testing.app import TestApp

        return TestApp(self, **o)

    def run(self, **o: Unpack[WorkerOptions]) -> int:
        """Run workers until told to stop: a supervisor here, workers in child processes. Owns the signals.

        Returns the exit code: 0 when everything finished. Put it under ``if __name__ == "__main__":``.
        """
        from mainspring.launch.run import run

        resolve_options("worker", o, subject="app.run")
        self.client.check_worker("app.run")
        return run(self, dict(o))

    def worker(self, **o: Unpack[WorkerOptions]) -> EmbeddedWorker:
        """A worker inside this process, for ``with`` and ``async with``: a thread, no signals."""
        from mainspring.launch.embedded import EmbeddedWorker

        parts = self.parts(**o)
        self.client.check_worker("app.worker")
        return EmbeddedWorker(parts)

    def parts(self, **o: Unpack[WorkerOptions]) -> WorkerConfig:
        """What a worker of this app is made of; imports every included module."""
        from mainspring.schedules.changes import code_of

        return self.settings.parts(
            self.tasks, o, lifespans=tuple(self._lifespans), hooks=self.hooks, middleware=tuple(self._middleware),
            schedules=code_of(self),
        )  # fmt: skip

    def open(self) -> Self:
        """Open the store now instead of at the first use, to see early whether it can be reached."""
        blocking.run("app.open", self.client.store())
        return self

    async def aopen(self) -> Self:
        await self.client.store()
        return self

    def close(self) -> None:
        """Let go of the store. The next use opens it anew."""
        blocking.run("app.close", self.client.close())

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
            self._client = Client(self.settings.address, self.settings.full_wait)
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

    def _declare(
        self, fn: Callable[..., Any], given: dict[str, Any], gather: Mapping[str, Any] | None = None
    ) -> BaseTask[Any, Any]:
        task = declare(TaskHome(self), fn, given, gather)
        self.tasks.add(task)
        return task

    def _add_schedule(self, declared: Declaration) -> None:
        if declared.call is not None and declared.call.app is not self:
            raise InvalidOption("call", declared.call, "is a call of another app", subject=declared.subject)
        self.tasks.add_schedule(declared)
