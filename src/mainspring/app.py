"""Mainspring: the object a user builds. It declares tasks and points to the features, which do the work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.client import blocking
from mainspring.common.callables import explain_call
from mainspring.common.handles import Reserved, foreign_hint, refuse_assigned
from mainspring.errors import InvalidOption, mask_url
from mainspring.flows.flow import remember_app
from mainspring.flows.shape import EACH_TASK
from mainspring.jobs.call import Call, aenqueue, checked_calls, enqueue
from mainspring.jobs.job import Job
from mainspring.jobs.new_job import CallTarget
from mainspring.options import checks
from mainspring.options.table import resolve_options
from mainspring.queues.queue import Queue, queue_objects
from mainspring.settings.settings import AppSettings
from mainspring.settings.table import TABLE
from mainspring.tasks import decorators, naming
from mainspring.tasks.declaration import TaskHome
from mainspring.tasks.hooks import Hooks
from mainspring.tasks.middleware import Middleware, check_middleware
from mainspring.tasks.registry import Registry, remember_begun

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self, Unpack

    from mainspring.breakers.breaker import Breaker
    from mainspring.breakers.manager import Breakers
    from mainspring.client.client import Client
    from mainspring.common.duration import Duration
    from mainspring.flows.manager import Flows
    from mainspring.jobs.dead import Dead
    from mainspring.jobs.manager import Jobs
    from mainspring.launch.embedded import EmbeddedWorker
    from mainspring.limits.declare import Concurrency, Rate
    from mainspring.limits.limiter import Limiter
    from mainspring.limits.manager import Limits
    from mainspring.limits.records import Limit
    from mainspring.locks.candidate import Callback
    from mainspring.locks.election import Election
    from mainspring.locks.lock import Lock, OnBusy
    from mainspring.locks.manager import Locks
    from mainspring.options.typed import BreakerOptions, PoolOptions, QueueOptions, WorkerOptions
    from mainspring.pools.declare import ProcessPool
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
    from mainspring.tasks.task import BaseTask
    from mainspring.testing.app import TestApp, TestOptions
    from mainspring.worker.config import WorkerConfig
    from mainspring.worker.manager import Workers

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound="Callable[[Event], Any] | Callable[[BreakerEvent], Any] | Callable[[ScheduleEvent], Any]")


_NOT_ASSIGNED = frozenset((*TABLE, "conf", "config"))
"""Names of settings, which an attribute would not change."""


def _refuse_setting(name: str, value: object) -> None:
    """Refuse ``app.url = "..."`` and Celery's ``app.conf = ...``."""
    hint = f"Write Mainspring({name}=...), MAINSPRING_{name.upper()} in the environment, or the project's file."
    shown = mask_url(value) if isinstance(value, str) else value
    refuse_assigned(name, shown, "Mainspring", foreign_hint(name, "Mainspring") or hint)


def _refuse_queue_objects(given: Mapping[str, object]) -> None:
    """Refuse a queue object in the settings: the app that is being made has not declared it."""
    for name, queue in queue_objects(given):
        hint = f"Give its name, {queue.name!r}, and declare it with app.queue({queue.name!r}, ...) afterwards."
        raise InvalidOption(
            name, queue, "is the queue of another app, whose options this app does not have", subject="Mainspring",
            hint=hint,
        )  # fmt: skip


class Mainspring(Reserved):
    """Background jobs on one store.

    ``url`` is a SQLite, PostgreSQL or Redis URL; without it, the store is a SQLite file beside the project's
    ``mainspring.toml`` or ``pyproject.toml``. ``include`` names modules with tasks; workers, and calls by name, import
    them on first use. A setting that is not given here may come from the environment (``MAINSPRING_URL``) or from the
    project file, which are read on first use. The constructor opens nothing.
    """

    _INTERNAL = frozenset({"client", "enqueue_middleware", "hooks", "import_included", "parts", "tasks"})

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str | None = None,
        name: str | None = None,
        include: Sequence[str] = (),
        version: str | None = None,
        **settings: Unpack[Settings],
    ) -> None:
        caller = sys._getframe(1)  # noqa: SLF001  # the default store lies beside the project of the module that declares the app
        while caller.f_back is not None and caller.f_locals.get("self") is self:  # skip the constructor of a subclass
            caller = caller.f_back
        declared_in = naming.file_of(caller.f_globals)
        own = {"url": url, "namespace": namespace, "name": name, "include": include or None, "version": version}
        given = {**settings, **{name: value for name, value in own.items() if value is not None}}
        _refuse_queue_objects(given)
        self.settings = AppSettings(given, declared_in)
        self.tasks = Registry(lambda: self.settings.include, lambda: self.settings.routes)
        self.tasks.built_ins[EACH_TASK] = self._expander
        remember_app(self)
        self.hooks = Hooks()
        self._client: Client | None = None
        self._lifespans: list[Callable[..., Any]] = []
        self._middleware: list[Middleware] = []
        self.enqueue_middleware: list[Middleware] = []
        """The middleware that changes calls, the outermost first."""
        self._limiters: dict[str, tuple[Limit, ...]] = {}
        self._breakers: dict[str, Limit] = {}
        self._semaphores: dict[str, int] = {}
        self._pools: dict[str, ProcessPool] = {}

    if not TYPE_CHECKING:  # a type checker must not accept every name

        def __setattr__(self, name: str, value: Any) -> None:
            if name in _NOT_ASSIGNED and not hasattr(type(self), name):
                _refuse_setting(name, value)
            object.__setattr__(self, name, value)

    # ---- declare ------------------------------------------------------------------------------

    task = decorators.task
    bulk_task = decorators.bulk_task
    schedule = decorators.schedule

    def lifespan(self, fn: F) -> F:
        """Run a generator function once around the jobs of each worker process; the yielded value is ``ctx.state``.

        Several lifespans start in the order of their declaration and end in reverse order. Then ``ctx.state`` has one
        value for each: ``ctx.state.database`` or ``ctx.state["database"]`` is that of the function ``database``.
        """
        self._lifespans.append(fn)
        return fn

    def include(self, *tasks: Tasks | str) -> None:
        """Add the tasks of a library's ``Tasks()``, or import the module with this name on first use."""
        for each in tasks:
            self.tasks.include(self, each)

    def queue(self, name: str, **o: Unpack[QueueOptions]) -> Queue:
        """Declare a queue: ``app.queue("premium", weight=5)``. Workers without ``queues=`` serve it too.

        The result may be given as ``queue=``. The maximum depth, the order and the limits of the queue are stored by
        the first enqueue and by workers when they start, and apply to every producer. ``app.queues.configure``
        overrides them.
        """
        resolved = resolve_options("queue", o, subject=f"queue {name!r}")
        return self.tasks.add_queue(Queue(checks.queue_name(name, "queue"), resolved))

    def limiter(self, name: str, *limits: Rate | Concurrency) -> Limiter:
        """Named limits, for tasks (``limit=``) and for any code (``with``, ``async with``)."""
        from mainspring.limits.limiter import Limiter

        return Limiter(self, name, limits).register(self._limiters)

    def breaker(self, name: str, **o: Unpack[BreakerOptions]) -> Breaker:
        """A circuit breaker: after repeated failures it stops tasks (``breaker=``) and any code for a time.

        Code uses it with ``with``, ``async with`` or as a decorator.
        """
        from mainspring.breakers.breaker import Breaker
        from mainspring.breakers.declare import declare_breaker

        subject = f"breaker {name!r}"
        resolved = resolve_options("breaker", o, subject=subject)
        made = Breaker(self, declare_breaker(checks.some_task_name(name, "name"), resolved, o, subject))
        return made.register(self._breakers)

    def pool(self, *, name: str, **o: Unpack[PoolOptions]) -> ProcessPool:
        """Declare a pool of child processes, for tasks with ``executor="process"`` and ``pool=``.

        Each worker that runs such a task has a pool of its own, with ``min`` to ``max`` children. The pool of tasks
        without ``pool=`` has the name ``default``; declare it to change its options.
        """
        from mainspring.pools.declare import declare_pool

        subject = f"pool {name!r}"
        made = declare_pool(checks.pool_name(name, "name"), resolve_options("pool", o, subject=subject), o)
        known = self._pools.setdefault(made.name, made)
        if known != made:
            raise InvalidOption("name", name, "is declared twice with different options", subject="app.pool")
        return made

    def lock(
        self, name: str, *, ttl: Duration = "30s", wait: Duration | None = None, on_busy: OnBusy = "raise"
    ) -> Lock:
        """A lock for any code in the whole fleet: ``with``, ``async with``, decorator, ``acquire`` and ``release``.

        The lock is renewed while its process lives; after a crash it is free within ``ttl``. If another holder has the
        lock, the caller waits for up to ``wait``; then ``LockBusy`` is raised, or with ``on_busy="skip"`` the guarded
        code is skipped.
        """
        from mainspring.locks.lock import Lock
        from mainspring.locks.names import LockName, check_name

        return Lock(self, LockName("lock", check_name("lock", name)), ttl, wait, on_busy)

    def semaphore(
        self, name: str, size: int, *, ttl: Duration = "30s", wait: Duration | None = None, on_busy: OnBusy = "raise"
    ) -> Lock:
        """A lock that up to ``size`` holders in the whole fleet have at once."""
        from mainspring.locks.lock import Lock
        from mainspring.locks.names import LockName, check_name, check_size

        spot = LockName("semaphore", check_name("semaphore", name), check_size(size, f"semaphore {name!r}"))
        return Lock(self, spot, ttl, wait, on_busy).register(self._semaphores)

    def election(
        self, name: str, *, elected: Callback | None = None, lost: Callback | None = None, ttl: Duration = "30s"
    ) -> Election:
        """A candidate for the leader of the fleet: ``start`` and ``stop``, ``with`` and ``async with``.

        ``elected(term)`` is called when the candidate becomes the leader, ``lost(term)`` when it is no longer leader.
        """
        from mainspring.locks.election import Election
        from mainspring.locks.names import LockName, check_name

        return Election(self, LockName("election", check_name("election", name)), ttl, elected, lost)

    @explain_call(
        "app.on",
        '@app.on("dead", task="shop.*")',
        queue="A hook is chosen by the event and the task. Compare event.queue in the function.",
    )
    def on(
        self, *events: EventName | BreakerEventName | ScheduleEventName, task: str | None = None
    ) -> Callable[[H], H]:
        """Call a function at events of jobs: ``@app.on("dead")``, ``@app.on("failed", "dead", task="shop.*")``.

        The function takes an ``Event`` and runs at most once, in the worker that stored the change; an exception is
        logged. ``task`` is the name of a task or a pattern; a worker without such a task logs a warning when it starts.
        Use a follow-up job (``on_dead=``, ``on_success=``, ``on_cancel=``) for work that must not be lost. At
        events of breakers (``@app.on("breaker_opened")``) the function takes a ``BreakerEvent``, at events of schedules
        (``@app.on("schedule_disabled")``) a ``ScheduleEvent``.
        """
        self.hooks.check(events, task)

        def add(fn: H) -> H:
            self.hooks.add(events, fn, task)
            return fn

        return add

    def middleware(self, m: Middleware) -> None:
        """Wrap every enqueue and every run; the middleware added first is the outermost.

        Its class has ``enqueue``, or ``run`` (for ``def`` tasks) and ``arun`` (for ``async def`` tasks), or all three.
        """
        if not isinstance(m, Middleware):
            raise InvalidOption("middleware", m, "is not a Middleware", hint="Derive it from mainspring.Middleware.")
        check_middleware(type(m))
        self._middleware.append(m)
        if type(m).enqueue is not Middleware.enqueue:
            self.enqueue_middleware.append(m)

    # ---- do -----------------------------------------------------------------------------------

    def call(self, task: str, /, *args: Any, **kwargs: Any) -> Call[Any]:
        """A call by the name of its task, not enqueued: no job exists before its ``.enqueue()``.

        The task need not be importable here.
        If the task is not known here, its arguments must be plain JSON values, and its queue is the one that the routes
        name, or ``default``, or the one of ``.options(queue=...)``.
        """
        known = self.tasks.find(task) if isinstance(task, str) else None
        if known is not None:
            call: Call[Any] = known.s(*args, **kwargs)
            return call
        from mainspring.codec import dumps_call, loads

        checks.some_task_name(task, "task")
        self.tasks.warn_of_near_name(task)
        resolved = resolve_options("task", {}, subject=f"task {task!r}")
        queue = self.settings.routes.queue_for(task, resolved["queue"])
        arguments = dumps_call(task, args, kwargs, limit=self.settings.payload_limit)
        return Call(self, CallTarget.of(task, "any", resolved, loads, queue), arguments, {})

    def enqueue_many(self, calls: Iterable[Call[R]], *, connection: Any = None) -> list[Job[R]]:
        """Enqueue these calls in this order: all of them, or none if one cannot be enqueued."""
        checked = checked_calls(self, calls)
        return enqueue(self, checked, connection, verb="enqueue_many") if checked else []

    async def aenqueue_many(self, calls: Iterable[Call[R]], *, connection: Any = None) -> list[Job[R]]:
        """Async version of ``enqueue_many``: enqueue these calls in this order, all of them or none."""
        checked = checked_calls(self, calls)
        return await aenqueue(self, checked, connection) if checked else []

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
        """Pause, resume, drain and purge queues, in the whole fleet."""
        from mainspring.queues.manager import Queues

        return Queues(self)

    @property
    def schedules(self) -> Schedules:
        """Put, list, enable, disable, trigger and backfill schedules, in the whole fleet."""
        from mainspring.schedules.manager import Schedules

        return Schedules(self)

    @property
    def limits(self) -> Limits:
        """List limits and change their sizes, in the whole fleet."""
        from mainspring.limits.manager import Limits

        return Limits(self)

    @property
    def breakers(self) -> Breakers:
        """List breakers, and open and close them by hand, in the whole fleet."""
        from mainspring.breakers.manager import Breakers

        return Breakers(self)

    @property
    def locks(self) -> Locks:
        """Locks that are held, and their holders."""
        from mainspring.locks.manager import Locks

        return Locks(self)

    @property
    def flows(self) -> Flows:
        """Open batches; list, show, cancel and retry flows."""
        from mainspring.flows.manager import Flows

        return Flows(self)

    @property
    def workers(self) -> Workers:
        """The live workers."""
        from mainspring.worker.manager import Workers

        return Workers(self)

    # ---- run ----------------------------------------------------------------------------------

    def test(self, **o: Unpack[TestOptions]) -> TestApp:
        """Replace the app's store by a private one with a movable clock, inside ``with`` or ``async with``."""
        from mainspring.testing.app import TestApp

        return TestApp(self, **o)

    def run(self, **o: Unpack[WorkerOptions]) -> int:
        """Run workers until a signal stops them: a supervisor here, workers in child processes.

        Installs signal handlers. Returns the exit code: 0 when every job finished. Put the call under
        ``if __name__ == "__main__":``.
        """
        from mainspring.launch.run import run

        self.tasks.declared_queues.check_own(o, "app.run")
        resolve_options("worker", o, subject="app.run")
        self.client.check_worker("app.run")
        return run(self, dict(o))

    def worker(self, **o: Unpack[WorkerOptions]) -> EmbeddedWorker:
        """A worker in a thread of this process, for ``with`` and ``async with``; installs no signal handlers."""
        from mainspring.launch.embedded import EmbeddedWorker

        self.tasks.declared_queues.check_own(o, "app.worker")
        parts = self.parts(**o)
        self.client.check_worker("app.worker")
        return EmbeddedWorker(parts, self.tasks.served)

    def parts(self, **o: Unpack[WorkerOptions]) -> WorkerConfig:
        """The configuration of a worker of this app; imports every included module."""
        from mainspring.launch.run import find_target
        from mainspring.schedules.edit import load_code_schedules

        found = self.settings.parts(
            self.tasks, o, lifespans=tuple(self._lifespans), hooks=self.hooks, middleware=tuple(self._middleware),
            schedules=load_code_schedules(self), find_target=lambda: find_target(self),
            pools={name: pool.settings for name, pool in self._pools.items()},
        )  # fmt: skip
        return found._replace(app=self)

    def open(self) -> Self:
        """Open the store now instead of at the first use, to see early whether the store can be reached."""
        blocking.run("app.open", self.client.store)
        return self

    async def aopen(self) -> Self:
        """Async version of ``open``: open the store now instead of at the first use."""
        await self.client.store()
        return self

    def close(self) -> None:
        """Close the store. The next use opens it again."""
        blocking.run("app.close", self.client.close)

    async def aclose(self) -> None:
        """Async version of ``close``: close the store. The next use opens it again."""
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
        """The client of the store; opens the store at the first use."""
        if self._client is None:
            from mainspring.client.client import Client

            settings = self.settings
            self._client = Client(
                settings.address, settings.full_wait, settings.enqueue_patience, program=lambda: settings.program
            )
        return self._client

    def import_included(self) -> None:
        """Import the modules of ``include=`` and ``app.include(...)`` that are not imported yet."""
        self.tasks.import_included()

    def __repr__(self) -> str:
        return f"<Mainspring {self.settings.shown_url}>"

    # ---- private ------------------------------------------------------------------------------

    def _expander(self, kind: str) -> BaseTask[Any, Any]:
        from mainspring.flows.expand import declared_expander
        from mainspring.tasks.task import AsyncTask, Task

        make: type[BaseTask[Any, Any]] = AsyncTask if kind == "async" else Task
        return make(TaskHome(self), declared_expander(self, kind))

    def _task_home(self) -> TaskHome:
        return TaskHome(self)

    def _add_task(self, task: BaseTask[Any, Any]) -> None:
        self.tasks.add(task)

    def _expect_schedule(self, began: object, what: str | None) -> None:
        remember_begun(self.tasks.begun_schedules[0], began, what)

    def _add_schedule(self, declared: Declaration) -> None:
        if declared.call is not None and declared.call.app is not self:
            raise InvalidOption("call", declared.call, "is a call of another app", subject=declared.subject)
        self.tasks.add_schedule(declared)
