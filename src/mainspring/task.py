"""Task: the function you decorate. A plain call stays a plain call; ``enqueue`` makes a job."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast
from uuid import UUID

from mainspring import naming, options
from mainspring.call import Call, Target
from mainspring.codec import Signature
from mainspring.ids import parse_id
from mainspring.job import Job
from mainspring.spec import TaskSpec

if TYPE_CHECKING:
    from typing import Self, Unpack

    from mainspring.app import Mainspring
    from mainspring.options import JobOptions

P = ParamSpec("P")
R = TypeVar("R")

_CONTEXTS = ("Context", "AsyncContext")


class BaseTask(Generic[P, R]):
    """What tasks of both colours share."""

    def __init__(self, app: Mainspring, fn: Callable[..., Any], kind: str, resolved: Mapping[str, Any]) -> None:
        self.fn = fn
        self.name: str = resolved["name"] or naming.task_name(fn)
        self.aliases: tuple[str, ...] = resolved["aliases"]
        self._app = app
        self._kind = kind
        self._task_options = resolved
        self._job_options: Mapping[str, Any] = {}
        self._unimportable = naming.unimportable(fn)
        functools.update_wrapper(cast("Any", self), fn)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Create a job that runs this task in the background.

        The arguments are checked against the task's signature now, not when the job runs.
        """
        return self.s(*args, **kwargs).enqueue()

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        return await self.s(*args, **kwargs).aenqueue()

    def options(self, **o: Unpack[JobOptions]) -> Self:
        """The same task with these options for the jobs enqueued through it."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._job_options = options.overlay(
            o, task=self._task_options, before=self._job_options, subject=f"task {self.name!r}"
        )
        return twin

    def s(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """The call with its arguments, checked and complete, to be enqueued later or together with others."""
        if self._unimportable:
            self._warn_unimportable()
        return Call(self._app, self._target, self._signature.encode_call(args, kwargs), self._job_options)

    def enqueue_many(self, calls: Iterable[Call[R]]) -> list[Job[R]]:
        """Enqueue these calls, all or none, in this order."""
        return self._app.enqueue_many(calls)

    async def aenqueue_many(self, calls: Iterable[Call[R]]) -> list[Job[R]]:
        return await self._app.aenqueue_many(calls)

    @property
    def queue(self) -> str:
        """The queue of its jobs, unless one says otherwise."""
        queue: str = self._job_options.get("queue") or self._task_options["queue"]
        return queue

    def job(self, id: UUID | str) -> Job[R]:  # the public name
        """The typed handle of a known job; looks nothing up."""
        return Job(parse_id(id), self.name, self._app.client, self._signature.decode_result)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @functools.cached_property
    def _signature(self) -> Signature:
        """Resolved at first use, when every module that annotations may name has been imported."""
        self._app.import_included()
        return Signature.of(self.fn, skip_context=self._takes_context, task=self.name)

    @functools.cached_property
    def _target(self) -> Target:
        return Target(self.name, self._kind, self._task_options, self._signature.decode_result)

    @functools.cached_property
    def _takes_context(self) -> bool:
        return takes_context(self.fn)

    def _warn_unimportable(self) -> None:
        warnings.warn(
            f"task {self.name!r} runs only in a worker embedded in this process: {self._unimportable}. "
            "Move the function to the top level of a module for other workers to find it.",
            stacklevel=3,
        )
        self._unimportable = None

    def spec(self) -> TaskSpec:
        """The task as a worker sees it."""
        o = self._task_options
        return TaskSpec(
            name=self.name,
            fn=self.fn,
            kind="async" if self._kind == "async" else "thread",
            signature=self._signature,
            takes_context=self._takes_context,
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
        )


class Task(BaseTask[P, R]):
    """A task made from a ``def``; its jobs run in threads."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function here and now; a context parameter gets a local one."""
        result: R = self.fn(*_local_context(self), *args, **kwargs)
        return result


class AsyncTask(BaseTask[P, R]):
    """A task made from an ``async def``; its jobs run on the worker's event loop."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function here and now; a context parameter gets a local one."""
        result: Coroutine[Any, Any, R] = self.fn(*_local_context(self), *args, **kwargs)
        return result


def takes_context(fn: Callable[..., Any]) -> bool:
    """Whether the first parameter is annotated as a ``Context`` or ``AsyncContext``."""
    code = getattr(fn, "__code__", None)
    if code is None or not code.co_argcount:
        return False
    first = fn.__annotations__.get(code.co_varnames[0])
    text = first if isinstance(first, str) else getattr(first, "__name__", "")
    return text.strip("'\"").rpartition(".")[2] in _CONTEXTS


def _local_context(task: BaseTask[Any, Any]) -> tuple[Any, ...]:
    if not task._takes_context:  # noqa: SLF001  # same module
        return ()
    from mainspring.worker.context import AsyncContext, Context

    return ((AsyncContext if isinstance(task, AsyncTask) else Context).local(task.name),)
