"""The declaration of a task: everything that is known before there is an app, a store or a resolved annotation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isclass, ismethod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mainspring.codec.annotations import parameter_names
from mainspring.codec.items import ITEM
from mainspring.common.callables import Dependency, is_async, misplaced_context, parameters_of, takes_context, yields
from mainspring.errors import BadSignature, InvalidOption, NoApp, did_you_mean
from mainspring.jobs.keys import check_names, refuse_placeholders
from mainspring.jobs.lanes import DEFAULT_POOL, bulk_term, pool_terms, version_term
from mainspring.jobs.new_job import FOLLOW_UPS, check_follow_up
from mainspring.limits.declare import bind, check_arguments
from mainspring.options.table import resolve_options
from mainspring.queues.queue import Queue
from mainspring.tasks import bulk, naming
from mainspring.tasks.bulk import Bulk
from mainspring.tasks.dependencies import DependencyPlan, plan_of, refuse_foreign

if TYPE_CHECKING:
    from mainspring.app import Mainspring

_BULK = resolve_options("bulk", {})
_CONTEXT_NAMES = ("ctx", "context", "self", "cls")
"""Names that people give to the context, or to the object of Celery's ``bind=True``."""
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


Kind = Literal["async", "thread", "process"]


class TaskHome:
    """The app of a task's jobs. The tasks of a ``Tasks()`` get their app when it is included."""

    __slots__ = ("_apps", "_queues", "app")

    def __init__(self, app: Mainspring | None = None) -> None:
        self.app = app
        self._apps = [] if app is None else [app]
        self._queues: list[tuple[dict[str, Queue], str]] = []
        """The queue objects in options of the tasks, each with the task, for apps that include the tasks later."""

    def use_queue(self, given: Mapping[str, Any], subject: str) -> None:
        """Refuse ``queue=`` with a queue object of another app, now, or when an app includes the tasks."""
        if not isinstance(queue := given.get("queue"), Queue):
            return
        used = {"queue": queue}, subject
        for app in self._apps:
            app.tasks.declared_queues.check_own(*used)
        if used not in self._queues:
            self._queues.append(used)

    def join(self, app: Mainspring) -> None:
        for used in self._queues:
            app.tasks.declared_queues.check_own(*used)
        if app not in self._apps:
            self._apps.append(app)
        self.app = app if len(self._apps) == 1 else None

    def find(self, task: str) -> Mainspring:
        """The app; ``NoApp`` says why there is none."""
        if self.app is None:
            raise NoApp(task, len(self._apps))
        return self.app

    def check(self, app: Mainspring, task: str) -> None:
        """``InvalidOption`` unless the task belongs to this app."""
        if app not in self._apps:
            raise InvalidOption("task", task, "is a task of another app", hint="Include its Tasks() in this app too.")


class TaskDeclaration(NamedTuple):
    """A function with the options of ``@app.task(...)``."""

    name: str
    fn: Callable[..., Any]
    kind: Kind
    options: Mapping[str, Any]
    """Resolved; durations in microseconds."""
    takes_context: bool
    plan: DependencyPlan | None
    upgrades: list[Upgrade]
    given: frozenset[str] = frozenset()
    """The options given in the declaration; the others have their defaults."""
    bulk: Bulk | None = None
    """How the jobs of a bulk task share calls; None for an ordinary task."""
    module_run: object = None
    """The run of the module that made the function."""

    @classmethod
    def of(
        cls, fn: Callable[..., Any], given: Mapping[str, Any], *, gather: Mapping[str, Any] | None = None
    ) -> TaskDeclaration:
        """Check everything that needs no other module; names in annotations are resolved at first use.

        ``gather`` has the additional options of a bulk task.
        """
        if not callable(fn) or isclass(fn) or hasattr(fn, "declared"):
            hint = 'Decorate a def or an async def: @app.task, or @app.task(name="shop.send").'
            raise InvalidOption("task", fn, "is not a function", hint=hint)
        subject = f"task {getattr(fn, '__qualname__', fn)!r}"
        resolved = resolve_options("task", given, subject=subject)
        _refuse_method(fn, given, subject)
        name = resolved["name"] or naming.task_name(fn)
        if yields(fn):
            hint = "Return a list, or send items while the task runs with ctx.send(...)."
            raise BadSignature(name, "", "is a generator; a task must return its result", hint=hint)
        awaited = is_async(fn)
        kind: Kind = resolved["executor"] or ("async" if awaited else "thread")
        if (kind == "async") is not awaited:
            hint = "async def runs on the event loop, def in a thread: leave executor out."
            if kind == "process":
                hint = "Write the task as def: a body in a process has the whole process for itself."
            what = "coroutine function" if awaited else "plain function"
            raise InvalidOption("executor", kind, f"does not fit a {what}", subject=subject, hint=hint)
        if "pool" in given and kind != "process":
            why = f"needs executor='process': the task runs {'on the event loop' if awaited else 'in a thread'}"
            raise InvalidOption("pool", given["pool"], why, subject=subject, hint="Add executor='process'.")
        refuse_foreign(fn, name)
        context = _context_of(fn, name, awaited)
        shared = None
        if gather is not None:
            if kind == "process":
                hint = "Leave executor out; a bulk task can call app.pool(...) for work in processes."
                why = "is not supported for bulk tasks, whose calls run in threads or on the event loop"
                raise InvalidOption("executor", kind, why, subject=subject, hint=hint)
            resolved |= resolve_options("bulk", gather, subject=subject)
            bulk.check_handler(parameters_of(fn)[int(context) :], name)
            bulk.check_options(resolved, subject)
            shared = Bulk.of(resolved)
        named = frozenset((*given, *(name for name in gather or () if resolved[name] != _BULK[name])))
        run = naming.module_run(fn)
        made = cls(name, fn, kind, resolved, context, plan_of(fn, task=name), [], named, shared, run)
        made.check_names()
        for event in FOLLOW_UPS:
            check_follow_up(event, resolved[event], f"task {name!r}")
        return made

    def check_names(self) -> None:
        """Refuse options that name arguments which the task does not have."""
        key, sensitive = self.options["key"], self.options["sensitive"]
        if key is not None and key.value is not None:
            refuse_placeholders("key", (key.value,), f"task {self.name!r}")
        refuse_placeholders("tags", self.options["tags"], f"task {self.name!r}")
        bounds = bind(self.name, (*self.options["limit"], *self.options["breaker"]), f"task {self.name!r}")
        if not sensitive and not bounds and (key is None or not key.names):
            return
        known = self.argument_names()
        if key is not None:
            check_names(key, self.name, known)
        check_arguments(bounds, known, f"task {self.name!r}")
        for name in sensitive:
            if name not in known:
                why = f"names {name!r}, which is not an argument of the task{did_you_mean(name, known)}"
                raise InvalidOption("sensitive", list(sensitive), why, subject=f"task {self.name!r}")

    @property
    def pool(self) -> str:
        """The pool of process slots that its jobs run in; empty for other tasks."""
        return str(self.options["pool"] or DEFAULT_POOL) if self.kind == "process" else ""

    def argument_names(self) -> list[str]:
        """The names of the arguments of its jobs."""
        if self.bulk is not None:
            return [ITEM]
        supplied = () if self.plan is None else self.plan.names
        names = parameter_names(self.fn, self.name)[int(self.takes_context) :]
        return [each for each in names if each not in supplied]

    def terms(self, version: str | None) -> tuple[str, ...]:
        """The requirements of its jobs for a worker, which are part of their lane."""
        terms = tuple(self.options["needs"]) if self.bulk is None else (*self.options["needs"], bulk_term(self.name))
        terms = (*terms, *pool_terms(self.pool))
        if not self.options["pin_version"]:
            return terms
        if version is None:
            raise no_version(self.name)
        return (*terms, version_term(version))

    def call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call the function in this process, with a local context and its dependencies.

        The handler of a bulk task gets a list with one item, and its one outcome is the result.
        """
        if self.bulk is None:
            return self._call(args, kwargs)
        value = self._call(*bulk.in_list(self.name, args, kwargs))
        return (bulk.aout_of_list if self.kind == "async" else bulk.out_of_list)(self.name, value)

    def _call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if not self.takes_context and self.plan is None:
            return self.fn(*args, **kwargs)
        from mainspring.worker.run.context import AsyncContext, Context

        ctx = (AsyncContext if self.kind == "async" else Context).local(self.name)
        args = (ctx, *args) if self.takes_context else args
        if self.plan is None:
            return self.fn(*args, **kwargs)
        return (self.plan.acall if self.kind == "async" else self.plan.call)(self.fn, ctx, args, kwargs)


def _refuse_method(fn: Callable[..., Any], given: Mapping[str, Any], subject: str) -> None:
    """Refuse a function that a worker could not call, or that has no name of its own."""
    if getattr(fn, "__name__", "") == "<lambda>" and given.get("name") is None:
        hint = 'Write a def, or give the task a name: app.task(name="shop.add")(...).'
        raise InvalidOption("task", fn, "is a lambda, and all lambdas of a module have the same name", hint=hint)
    if ismethod(fn) or _takes_self(fn):
        hint = "Write a def outside of the class that makes or loads the object, and pass it what it needs to do so."
        why = "is a method, and a worker has no object to call it on"
        raise InvalidOption("task", fn, why, subject=subject, hint=hint)


def _takes_self(fn: Callable[..., Any]) -> bool:
    """Whether the function was defined in the body of a class and needs its object."""
    owner = getattr(fn, "__qualname__", "").rpartition(".")[0]
    if not owner or owner.endswith("<locals>"):
        return False
    first = next(iter(parameters_of(fn)), None)
    return first is not None and first.name in ("self", "cls")


def no_version(task: str) -> InvalidOption:
    """The error of a task with ``pin_version`` in an app without a version."""
    return InvalidOption(
        "pin_version", True, "needs the version of the app", subject=f"task {task!r}",
        hint='Mainspring(version="1.4"), or MAINSPRING_VERSION in the environment.',
    )  # fmt: skip


def _refuse_bare_context(fn: Callable[..., Any], task: str, wanted: str) -> None:
    """Refuse a first parameter that is named like the context and has no annotation: it would be an argument."""
    first = next(iter(parameters_of(fn)), None)
    if first is None or first.name not in _CONTEXT_NAMES or first.annotation is not first.empty:
        return
    if isinstance(first.default, Dependency) or first.kind in (first.VAR_POSITIONAL, first.VAR_KEYWORD):
        return
    why = "has no annotation: it would get the first argument of the job, not the context"
    habit = " Celery's bind=True and self are the context here." if first.name == "self" else ""
    hint = f"For the context write ctx: {wanted}; for an argument annotate it, or choose another name.{habit}"
    raise BadSignature(task, first.name, why, hint=hint)


def _context_of(fn: Callable[..., Any], task: str, awaited: bool) -> bool:
    """Whether it takes the context. Refused if the context is not the first parameter, or of the wrong kind."""
    if misplaced := misplaced_context(fn):
        why = "must be the first parameter to get the context, annotated with exactly Context or AsyncContext"
        raise BadSignature(task, misplaced, why)
    found = takes_context(fn)
    wanted = "AsyncContext" if awaited else "Context"
    if not found:
        _refuse_bare_context(fn, task, wanted)
    if found and found != wanted:
        first = next(iter(parameters_of(fn))).name
        kind, article = ("async def", "a") if awaited else ("def", "an")
        why = f"is {article} {found}, and the task is {kind}"
        raise BadSignature(task, first, why, hint=f"Annotate the parameter with {wanted}.")
    return bool(found)
