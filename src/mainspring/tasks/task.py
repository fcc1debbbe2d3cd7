"""Task: the decorated function. A plain call runs the function; ``enqueue`` makes a job."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast
from uuid import UUID

from mainspring.codec import ItemSignature, Signature
from mainspring.codec.signature import Supplied
from mainspring.common.callables import is_async, name_of, yields
from mainspring.common.handles import Reserved, foreign_hint, refuse_assigned
from mainspring.common.ids import parse_id
from mainspring.errors import (
    ArgumentError,
    BadSignature,
    InvalidOption,
    MissingArgument,
    OptionsOnCall,
    UnknownArgument,
    WrongArgument,
    shown,
)
from mainspring.jobs.call import UPSTREAM, Call, Step, aenqueue, enqueue, inheriting_calls
from mainspring.jobs.job import Job
from mainspring.jobs.lanes import on_terms
from mainspring.jobs.new_job import CallTarget, key_of
from mainspring.limits.declare import bind
from mainspring.options.table import options_for, overlay_options
from mainspring.tasks import naming
from mainspring.tasks.declaration import TaskDeclaration, TaskHome
from mainspring.tasks.spec import TaskSpec

if TYPE_CHECKING:
    from typing import Self, Unpack

    from mainspring.app import Mainspring
    from mainspring.jobs.keys import Key
    from mainspring.limits.declare import BoundLimit
    from mainspring.limits.records import Limit
    from mainspring.options.typed import JobOptions

P = ParamSpec("P")
R = TypeVar("R")
U = TypeVar("U", bound=Callable[[dict[str, Any]], dict[str, Any]])


class BaseTask(Reserved, Generic[P, R]):
    """The common part of ``Task`` and ``AsyncTask``."""

    _INTERNAL = frozenset(
        {
            "bound_to",
            "declared",
            "declared_result",
            "given",
            "join",
            "limits",
            "module_run",
            "own_key",
            "parameter_types",
            "positional",
            "spec",
            "step",
            "target",
        }
    )
    _stamp = 0
    """The stamp of the registry when the target was made."""

    def __init__(self, home: TaskHome, declared: TaskDeclaration) -> None:
        self.fn = declared.fn
        self.module_run = declared.module_run
        self.name = declared.name
        self.aliases: tuple[str, ...] = declared.options["aliases"]
        self._home = home
        self._declared = declared
        self._job_options: Mapping[str, Any] = {}
        self._unimportable = naming.unimportable(self.fn)
        functools.update_wrapper(cast("Any", self), self.fn)

    if not TYPE_CHECKING:  # a type checker must not accept every name

        def __setattr__(self, name: str, value: Any) -> None:
            if not name.startswith("_") and "_declared" in self.__dict__ and not hasattr(type(self), name):
                self._refuse_option(name, value)
            object.__setattr__(self, name, value)

        def __or__(self, other: Any) -> Any:
            hint = f"A flow begins with a call: {name_of(self.fn)}.s(...) | ..."
            raise InvalidOption("flow", self, "is a task, not a call", subject="flow |", hint=hint)

        def __ror__(self, other: Any) -> Any:
            hint = "The left side is a call or a group: a.s(...) | task, group(a.s(1), a.s(2)) | task."
            raise InvalidOption("flow", other, "is neither a call nor a group", subject="flow |", hint=hint)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Create a job that runs this task in the background.

        The arguments are checked against the task's signature now, not when the job runs.
        """
        call = self.s(*args, **kwargs)
        return enqueue(call.app, (call,))[0]

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Async version of ``enqueue``: create a job that runs this task in the background."""
        call = self.s(*args, **kwargs)
        return (await aenqueue(call.app, (call,)))[0]

    def options(self, **o: Unpack[JobOptions]) -> Self:
        """The same task with these options for its jobs."""
        self._home.use_queue(o, f"task {self.name!r}")
        given = overlay_options(o, task=self._declared.options, before=self._job_options, subject=f"task {self.name!r}")
        return self._twin(_job_options=given)

    def s(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call with these arguments, checked, and not enqueued: no job exists before its ``.enqueue()``.

        Enqueue it later, together with other calls (``app.enqueue_many``), or give it to a schedule or a follow-up.
        """
        if self._unimportable:
            self._warn_unimportable()
        app = self._home.app or self._home.find(self.name)
        target = self._target if self._stamp == app.tasks.stamp else self.target
        try:
            arguments = self._signature.encode_call(args, kwargs)
        except UnknownArgument as error:
            raise self._about_option(error, kwargs) from None
        except ArgumentError as error:
            values = (*args, *kwargs.values())
            if any(_holds_supplied(value) for value in values):
                why = "has the result of a node inside of another value, where it cannot be replaced"
                hint = "Give it as an argument of its own: task.s(a.result, b.result). For a list: group(...) | task."
                raise WrongArgument(self.name, "", why, hint=hint) from None
            if any(isinstance(value, Supplied) for value in values):
                return self._partial(args, kwargs)
            if isinstance(error, MissingArgument) and error.missing[:1] == self._signature.positional[:1]:
                name = self.name.rpartition(".")[2]
                error.hint += f" In a flow, the result before it is its value: write | {name}, or .then({name}, ...)."
            raise
        return Call(app, target, arguments, self._job_options)

    def step(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Step[R]:
        """A call whose first argument is the result of the part of the flow before it."""
        return self._partial((UPSTREAM, *args), kwargs)

    def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Job[R]]:
        """Enqueue these calls, all or none, in this order.

        The options of ``task.options(...)`` hold for every call that does not have them itself; tags are added, meta is
        merged. With ``connection=`` all calls are enqueued in the transaction of this connection.
        """
        return self._app.enqueue_many(self._with_options(calls), connection=self._job_options.get("connection"))

    async def aenqueue_many(self, calls: Iterable[Call[R]]) -> list[Job[R]]:
        """Async version of ``enqueue_many``: enqueue these calls, all or none, in this order."""
        connection = self._job_options.get("connection")
        return await self._app.aenqueue_many(self._with_options(calls), connection=connection)

    def upgrade(self, fn: U) -> U:
        """Decorate a function that converts the arguments of jobs that were enqueued with an older signature.

        The function gets the stored arguments by name if they do not fit the current signature, and returns the
        arguments to run with. Positional arguments from a producer without the code are a list under ``@``::

            @send.upgrade
            def send_from_v1(old: dict[str, Any]) -> dict[str, Any]:
                return {"to": old["address"]}
        """
        if not callable(fn) or is_async(fn) or yields(fn):
            hint = "The function takes the old arguments as a dict and returns the new arguments."
            raise InvalidOption("upgrade", fn, "must be a def", subject=f"task {self.name!r}", hint=hint)
        self._declared.upgrades.append(fn)
        return fn

    def job(self, id: UUID | str) -> Job[R]:  # public API
        """The typed handle of a job with this id; does not read the store."""
        return Job(parse_id(id), self.name, self._app.client, self._signature.decode_result)

    # ---- inspect ------------------------------------------------------------------------------

    @property
    def queue(self) -> str:
        """The queue of its jobs, unless a job has its own."""
        queue: str = self._job_options.get("queue") or self._app.settings.routes.queue_for(
            self.name, self._declared.options["queue"]
        )
        return queue

    @property
    def target(self) -> CallTarget:
        """The facts for its calls; made again after a new schedule, which can change all jobs of a task."""
        stamp = self._app.tasks.stamp
        if self._stamp != stamp:
            self.__dict__.pop("_target", None)
            self._stamp = stamp
        return self._target

    @property
    def declared_result(self) -> Any:
        """The declared type of the result; ``Any`` without an annotation."""
        return self._signature.returns

    @property
    def parameter_types(self) -> Mapping[str, Any]:
        """The declared types of the parameters, by name."""
        return self._signature.parameters

    @property
    def positional(self) -> tuple[str, ...]:
        """The parameters that can be given by position, in order."""
        return self._signature.positional

    @property
    def given(self) -> Mapping[str, Any]:
        """The job options of ``task.options(...)``, in normal form."""
        return self._job_options

    @property
    def own_key(self) -> Key | None:
        """The unique key of its jobs."""
        return key_of(self._job_options, self._declared.options)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits of its jobs."""
        return tuple(bound.limit for bound in self._bounds)

    @property
    def declared(self) -> TaskDeclaration:
        """The declaration: the function and its options in normal form."""
        return self._declared

    def bound_to(self, app: Mainspring) -> Self:
        """The same task with this app for its jobs; the app must include the task."""
        if self._home.app is app:
            return self
        self._home.check(app, self.name)
        return self._at(TaskHome(app))

    def join(self, app: Mainspring) -> Self:
        """Become a task of this app; returns the task that is bound to this app only."""
        self._home.join(app)
        return self._at(TaskHome(app))

    def spec(self) -> TaskSpec:
        """The task as a worker sees it."""
        o = self._declared.options
        return TaskSpec(
            name=self.name,
            fn=self.fn,
            kind=self._declared.kind,
            signature=self._signature,
            takes_context=self._declared.takes_context,
            retries=o["retries"],
            timeout=o["timeout"] or 0,
            soft_timeout=o["soft_timeout"] or 0,
            backoff=o["backoff"],
            retry_on=o["retry_on"],
            never_retry_on=o["never_retry_on"],
            retry_if=o["retry_if"],
            crashes=o["crashes"],
            early=o["ack"] == "early",
            strict=o["fence"] == "strict",
            keep_result=o["result"] == "store",
            plan=self._declared.plan,
            upgrade=self._declared.upgrades[-1] if self._declared.upgrades else None,
            hide=self._hidden_in_worker(),
            needs=o["needs"],
            pinned=o["pin_version"],
            bulk=self._declared.bulk,
            bounds=self._bounds,
            breaker=next(iter(o["breaker"]), None),
            options=o,
            pool=self._declared.pool,
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> str:
        """Pickle by the name in its module, as functions are pickled."""
        return str(getattr(self, "__qualname__", self.name))

    # ---- private ------------------------------------------------------------------------------

    def _partial(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Step[R]:
        try:
            made = self._signature.encode_partial(args, kwargs)
        except UnknownArgument as error:
            raise self._about_option(error, kwargs) from None
        return Step(self._app, self.target, made.data, self._job_options, inputs=made.supplied)

    @property
    def _app(self) -> Mainspring:
        return self._home.app or self._home.find(self.name)

    @functools.cached_property
    def _signature(self) -> Signature:
        """The signature, resolved at first use, when all modules with annotated types are imported."""
        app, context = self._app, self._declared.takes_context
        app.import_included()
        limit = app.settings.payload_limit
        if (bulk := self._declared.bulk) is not None:
            return ItemSignature(self.fn, skip_context=context, task=self.name, limit=limit, by=bulk.by)
        return Signature.of(self.fn, skip_context=context, task=self.name, limit=limit)

    @functools.cached_property
    def _target(self) -> CallTarget:
        declared, signature = self._declared, self._signature
        return CallTarget.of(
            self.name,
            on_terms(declared.kind, declared.terms(self._app.settings.version)),
            declared.options,
            signature.decode_result,
            self._app.settings.routes.queue_for(self.name, declared.options["queue"]),
            signature.arguments,
            self._hide,
            self._schedule_bounds,
        )

    @property
    def _schedule_bounds(self) -> tuple[BoundLimit, ...]:
        """The limits that the task's one schedule adds to all its jobs."""
        return () if self._home.app is None else self._home.app.tasks.schedule_bounds(self.name)

    @property
    def _bounds(self) -> tuple[BoundLimit, ...]:
        declared = (*self._declared.options["limit"], *self._declared.options["breaker"])
        return (*bind(self.name, declared, f"task {self.name!r}"), *self._schedule_bounds)

    @functools.cached_property
    def _hide(self) -> tuple[str, ...]:
        """The arguments whose values are never shown."""
        return tuple(dict.fromkeys((*self._declared.options["sensitive"], *self._signature.secrets)))

    def _hidden_in_worker(self) -> tuple[str, ...]:
        try:
            return self._hide
        except BadSignature:  # no job of this task can be decoded; each job reports the reason
            return tuple(self._declared.options["sensitive"])

    def _with_options(self, calls: Iterable[Call[R]]) -> Iterable[Call[R]]:
        return inheriting_calls(self._app, calls, self._job_options) if self._job_options else calls

    def _about_option(self, error: UnknownArgument, given: Mapping[str, Any]) -> UnknownArgument:
        """The error of an unknown argument; if it has the name of a job option, the hint says where options go."""
        name = error.argument
        if name in {option.name for option in options_for("job")}:
            value = shown(given[name], 40) if isinstance(given.get(name), int | float | str) else "..."
            error.hint = f"{name} is an option of the job: {name_of(self.fn)}.options({name}={value}).enqueue(...)."
        elif name in given and (hint := foreign_hint(name, "option")):
            error.hint = f"{hint} Options of a job go into .options(...), before .enqueue(...)."
        return error

    def _at(self, home: TaskHome) -> Self:
        twin = self._twin(_home=home)
        for resolved in ("_target", "_signature", "_hide"):
            twin.__dict__.pop(resolved, None)
        return twin

    def _twin(self, **changed: Any) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.__dict__.update(changed)
        return twin

    def _refuse_option(self, name: str, value: object) -> None:
        """Refuse ``task.retries = 9`` and ``task.rate_limit = "10/m"`` of Celery; other attributes are the user's."""
        known = {option.name for option in options_for("task")}
        hint = foreign_hint(name, "option")
        if name in known:
            hint = f"Write @app.task({name}=...) where the task is declared."
            if name in {option.name for option in options_for("job")}:
                hint = f"{hint[:-1]}, or task.options({name}=...) for one job."
        if hint:
            refuse_assigned(name, value, f"task {self.name!r}", hint)

    def _warn_unimportable(self) -> None:
        warnings.warn(
            f"task {self.name!r} runs only in a worker embedded in this process: {self._unimportable}. "
            "Move the function to the top level of a module, so that other workers can import it.",
            stacklevel=3,
        )
        self._unimportable = None


class Task(BaseTask[P, R]):
    """A task made from a ``def``; its jobs run in threads."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function in this process, with a local context and its dependencies."""
        if self._job_options:
            raise OptionsOnCall(self.name, self._job_options, "enqueue")
        result: R = self._declared.call(args, kwargs)
        return result


class AsyncTask(BaseTask[P, R]):
    """A task made from an ``async def``; its jobs run on the worker's event loop."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function in this process, with a local context and its dependencies."""
        if self._job_options:
            raise OptionsOnCall(self.name, self._job_options, "aenqueue")
        result: Coroutine[Any, Any, R] = self._declared.call(args, kwargs)
        return result


def declare(
    home: TaskHome, fn: Callable[..., Any], given: Mapping[str, Any], gather: Mapping[str, Any] | None = None
) -> BaseTask[Any, Any]:
    """Make the task of a function with these options; with ``gather``, a bulk task."""
    declared = TaskDeclaration.of(fn, given, gather=gather)
    made: type[BaseTask[Any, Any]] = AsyncTask if declared.kind == "async" else Task
    return made(home, declared)


def _holds_supplied(value: Any, depth: int = 8) -> bool:
    """Whether a list or dict contains the result of a node. ``depth``: a list may contain itself."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if not depth or not isinstance(value, (list, tuple, set, frozenset)):
        return False
    return any(isinstance(each, Supplied) or _holds_supplied(each, depth - 1) for each in value)
