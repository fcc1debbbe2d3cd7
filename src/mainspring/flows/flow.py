"""Expressions of flows: what can be composed with ``|``, ``then``, ``each``, ``group`` and ``undo``, and enqueued.

An expression is immutable, and every change returns a new one. ``plan.py`` turns it into jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, NamedTuple, ParamSpec, TypeVar, cast, overload

from mainspring.common.handles import Handle
from mainspring.errors import InvalidOption

if TYPE_CHECKING:
    from typing import Self, Unpack

    from mainspring.app import Mainspring
    from mainspring.flows.settings import FlowOptions
    from mainspring.jobs.call import Step
    from mainspring.jobs.job import Job

A = TypeVar("A")
B = TypeVar("B")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

When = Literal["fail", "ignore", "skip", "wait"]
"""What a job of a flow does if a job before it did not succeed: it is cancelled; it runs; it is left out, and the jobs
behind it go on; it waits until the dead job was retried and has succeeded."""
WHENS = ("fail", "ignore", "skip", "wait")


class Flow(Handle, Generic[R_co]):
    """Something that can be enqueued and composed: a call, a chain, or a group. Its result has the type ``R_co``."""

    __slots__ = ()

    _INTERNAL = frozenset({"aenqueue_member", "app", "empty_result", "enqueue_member", "with_undo"})

    _INSTEAD = "Build the flow again in the other process, or send the ids of its jobs."
    app: Mainspring | None
    """None for a group without parts, which takes the app of the part beside it."""

    @overload
    def __or__(self, other: Flow[B]) -> Chain[B]: ...
    @overload
    def __or__(self, other: FanOut[R_co, B]) -> Group[B]: ...
    @overload
    def __or__(self, other: Callable[Concatenate[R_co, ...], Coroutine[Any, Any, B]]) -> Chain[B]: ...
    @overload
    def __or__(self, other: Callable[Concatenate[R_co, ...], B]) -> Chain[B]: ...

    def __or__(self, other: Any) -> Any:
        """``flow | task``: run the task with the result of the flow as its first argument.

        ``flow | group(b, c)``, a group of tasks, runs each of them with the result. ``flow | other_flow`` (a call such
        as ``b.s(2)``, a group of calls) runs the other flow after this one, without its result.
        """
        if isinstance(other, Flow):
            return Chain(self, (Link("after", (of_app(other, self.app),)),), other.app)
        if isinstance(other, FanOut):
            steps = tuple([_step(self.app, each, (), {}, "|") for each in other.tasks])
            for step in steps:
                _check_types(self, step)
            return Chain(self, (Link("fan", steps),))
        return self.then(other)

    @overload
    def then(
        self, task: Callable[Concatenate[R_co, Q], Coroutine[Any, Any, B]], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Chain[B]: ...
    @overload
    def then(self, task: Callable[Concatenate[R_co, Q], B], /, *args: Q.args, **kwargs: Q.kwargs) -> Chain[B]: ...

    def then(self, task: Any, /, *args: Any, **kwargs: Any) -> Chain[Any]:
        """Run the task with the result of this flow as its first argument, and these further arguments.

        ``flow.then(resize, width=800)`` is ``flow | resize`` with an argument.
        """
        step = _step(self.app, task, args, kwargs, "then")
        _check_types(self, step)
        return Chain(self, (Link("then", (step,)),))

    @overload
    def each(
        self: Flow[list[A]],
        task: Callable[Concatenate[A, Q], Coroutine[Any, Any, B]],
        /,
        *args: Q.args,
        **kwargs: Q.kwargs,
    ) -> Group[B]: ...
    @overload
    def each(
        self: Flow[list[A]], task: Callable[Concatenate[A, Q], B], /, *args: Q.args, **kwargs: Q.kwargs
    ) -> Group[B]: ...
    @overload
    def each(
        self: Flow[list[A]],
        task: Callable[Concatenate[A, ...], Coroutine[Any, Any, B]],
        /,
        *args: Any,
        on_failure: Literal["fail", "partial"],
        **kwargs: Any,
    ) -> Group[B]: ...
    @overload
    def each(
        self: Flow[list[A]],
        task: Callable[Concatenate[A, ...], B],
        /,
        *args: Any,
        on_failure: Literal["fail", "partial"],
        **kwargs: Any,
    ) -> Group[B]: ...

    def each(self: Any, task: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run the task once for each element of the result of this flow, which must be a list.

        The result is the list of the results, in the order of the elements. The number of elements is known when this
        flow has ended; a worker enqueues the jobs then.

        ``on_failure`` is that of ``group``: with ``"partial"``, the jobs behind run when all elements have ended, with
        the results of the elements that succeeded. A parameter of the task with this name is given by position.
        """
        partial = _is_partial(kwargs.pop("on_failure", "fail"), "each")
        step = _step(self.app, task, args, kwargs, "each")
        _check_types(self, step, each=True)
        return Chain(self, (Link("each", (step,), partial=partial),))

    def undo(self, task: Callable[Concatenate[R_co, ...], Any], /) -> Self:
        """Name the compensation: if the flow fails later, run the task with the result of this part of the flow.

        Compensations run one after the other, the last part of the flow first, each with the retries of its task. A
        part that did not succeed is not undone. A flow that is cancelled by hand is not undone.
        """
        step = _step(self.app, task, (), {}, "undo")
        _check_types(self, step)
        return self.with_undo(step)

    def when(self, policy: When) -> Self:
        """What the last part of a chain does if the part before it did not succeed: see ``When``."""
        hint = "It belongs behind a |: (a.s() | b).when(...)."
        raise InvalidOption("when", policy, "has no effect here", subject=repr(self), hint=hint)

    def flow(self, **options: Unpack[FlowOptions]) -> PlannedFlow[R_co]:
        """This flow with options for the whole of it: ``name``, ``key``, ``time_limit``, ``tags``, ``connection``."""
        from mainspring.flows.settings import flow_options

        return PlannedFlow(self, flow_options(options))

    def enqueue(self) -> Job[R_co]:
        """Create all jobs of the flow, or none. Returns the handle of its last job, which has the flow's result."""
        from mainspring.flows.start import enqueue_flow

        return cast("Job[R_co]", enqueue_flow(self))

    async def aenqueue(self) -> Job[R_co]:
        """Async version of ``enqueue``: create all jobs of the flow, or none."""
        from mainspring.flows.start import aenqueue_flow

        return cast("Job[R_co]", await aenqueue_flow(self))

    def enqueue_member(self, place: Any) -> Job[R_co]:
        """Create the jobs of this part in a flow that is there already, for ``ctx.flow.add`` and batches."""
        from mainspring.flows.start import add_to_flow

        app = app_beside(self)
        batch, job = add_to_flow(app, self, place)
        app.client.enqueue_now(batch)
        return job

    async def aenqueue_member(self, place: Any) -> Job[R_co]:
        """Async version of ``enqueue_member``: create the jobs of this part in a flow that is there already."""
        from mainspring.flows.start import add_to_flow

        app = app_beside(self)
        batch, job = add_to_flow(app, self, place)
        await app.client.enqueue(batch)
        return job

    def empty_result(self) -> Any:
        """The result of a flow that contains no call; ``InvalidOption`` if there is none."""
        return app_beside(self)  # raises

    def with_undo(self, step: Step[Any]) -> Self:
        """The same part with this compensation."""
        hint = "Give each part its own: group(a.s().undo(x), b.s().undo(y))."
        raise InvalidOption("undo", step.task, "cannot be given here", subject=repr(self), hint=hint)


class Link(NamedTuple):
    """A part of a chain behind another part."""

    kind: Literal["then", "fan", "each", "after"]
    """``then``: one step with the result; ``fan``: several; ``each``: one for each element; ``after``: a flow."""
    targets: tuple[Any, ...]
    when: When = "fail"
    partial: bool = False
    """For ``each``: the part succeeds with the results of the elements that succeeded."""


class Chain(Flow[R_co]):
    """Parts that run one after the other."""

    __slots__ = ("app", "first", "links")

    links: tuple[Link, ...]

    def __init__(self, before: Flow[Any], links: tuple[Link, ...], app: Mainspring | None = None) -> None:
        _refuse_planned(before)
        self.app = before.app or app or next((each.app for link in links for each in link.targets if each.app), None)
        if isinstance(before, Chain):
            links = (*before.links, *links)
        self.first: Flow[Any] = before.first if isinstance(before, Chain) else before
        self.links = links

    def when(self, policy: When) -> Self:
        if policy not in WHENS:
            raise InvalidOption("when", policy, f"must be one of {', '.join(map(repr, WHENS))}", subject=repr(self))
        return self._with_last(self.links[-1]._replace(when=policy))

    def with_undo(self, step: Step[Any]) -> Self:
        """The same part with this compensation."""
        last = self.links[-1]
        if last.kind not in ("then", "after"):
            return super().with_undo(step)
        target = last.targets[0].with_undo(step)
        return self._with_last(last._replace(targets=(target,)))

    def empty_result(self) -> Any:
        """The result of a chain without calls: that of its last group."""
        return self.links[-1].targets[0].empty_result()

    def _with_last(self, link: Link) -> Self:
        return type(self)(self.first, (*self.links[:-1], link))

    def __repr__(self) -> str:
        return f"<Chain of {len(self.links) + 1} parts from {self.first!r}>"


class Group(Flow[list[R_co]]):
    """Parts that run at the same time. Its result is the list of their results, in their order."""

    __slots__ = ("app", "members", "partial")

    def __init__(self, members: Sequence[Flow[R_co]], *, partial: bool = False) -> None:
        self.app = _one_app(members)
        self.members = tuple(members)
        self.partial = partial

    def __len__(self) -> int:
        return len(self.members)

    def empty_result(self) -> list[Any]:
        """The result of a group without calls, whose members are such groups too."""
        return [each.empty_result() for each in self.members]

    def __repr__(self) -> str:
        return f"<Group of {len(self.members)} parts>"


class FanOut(Generic[A, B]):
    """Tasks that all get the result of the part before: ``flow | group(b, c)``."""

    __slots__ = ("tasks",)

    def __init__(self, tasks: Sequence[Any]) -> None:
        self.tasks = tuple(tasks)

    def __repr__(self) -> str:
        return f"<FanOut to {len(self.tasks)} tasks>"


class PlannedFlow(Flow[R_co]):
    """A flow with options of its own."""

    __slots__ = ("app", "body", "settings")

    def __init__(self, body: Flow[R_co], settings: Any) -> None:
        before: Any = body if isinstance(body, PlannedFlow) else None
        self.app = body.app
        self.body: Flow[R_co] = body if before is None else before.body
        self.settings: dict[str, Any] = settings if before is None else {**before.settings, **settings}

    def __repr__(self) -> str:
        return f"{self.body!r} with {', '.join(self.settings)}"


# ---- functions ----------------------------------------------------------------------------------------


def chain(first: Flow[Any], *rest: Any) -> Flow[Any]:
    """``first | a | b``, from a list of tasks: ``chain(fetch.s(url), *tasks)``. ``|`` and ``then`` are typed."""
    made = _need_flow(first, "chain")
    for part in rest:
        made = made | part
    return made


@overload
def group(*calls: Flow[R], on_failure: Literal["fail", "partial"] = "fail") -> Group[R]: ...
@overload
def group(calls: Iterable[Flow[R]], /, *, on_failure: Literal["fail", "partial"] = "fail") -> Group[R]: ...
@overload
def group(*tasks: Callable[Concatenate[A, ...], Coroutine[Any, Any, B]]) -> FanOut[A, B]: ...
@overload
def group(*tasks: Callable[Concatenate[A, ...], B]) -> FanOut[A, B]: ...
def group(*calls: Any, on_failure: str = "fail") -> Any:
    """Parts that run at the same time: ``group(a.s(1), b.s(2))`` or ``group(resize.s(x) for x in images)``.

    The result is the list of the results, in the order of the parts. If a part does not succeed, the jobs behind the
    group are cancelled after all parts have ended; with ``on_failure="partial"`` they run with the other results.
    ``group(b, c)`` with tasks instead of calls stands behind a ``|``: each task gets the result of the part before.
    """
    if len(calls) == 1 and not isinstance(calls[0], Flow) and not is_task(calls[0]):
        calls = tuple(_iterated(calls[0]))
    if calls and all(map(is_task, calls)):
        return FanOut(calls)
    partial = _is_partial(on_failure, "group")
    return Group([_need_flow(each, "group") for each in calls], partial=partial)


def chord(header: Flow[list[R]], callback: Callable[Concatenate[list[R], ...], B]) -> Chain[B]:
    """``header | callback``: run the callback with the list of the results of the group."""
    return cast("Chain[B]", header | callback)


def app_beside(flow: Flow[Any]) -> Mainspring:
    """The app of the flow."""
    if flow.app is None:
        hint = "Give it a part, or put a task behind it: group([]) | task."
        raise InvalidOption("flow", flow, "has no task, so it belongs to no app", subject="enqueue", hint=hint)
    return flow.app


# ---- private ------------------------------------------------------------------------------------------


def is_task(value: Any) -> bool:
    return hasattr(value, "bound_to") and hasattr(value, "s") and not isinstance(value, Flow)


def _iterated(value: Any) -> Iterable[Any]:
    try:
        return tuple(value)
    except TypeError:
        hint = "group(task.s(1), task.s(2)), or group(task.s(x) for x in items)."
        raise InvalidOption("calls", value, "is neither a call nor several calls", subject="group", hint=hint) from None


def _need_flow(value: Any, verb: str) -> Flow[Any]:
    if isinstance(value, Flow):
        return value
    if is_task(value):
        hint = f"Give it its arguments: {value.name.rpartition('.')[2]}.s(...)."
        raise InvalidOption("calls", value, "is a task, not a call", subject=verb, hint=hint)
    raise InvalidOption(
        "calls", value, "is not a call", subject=verb, hint="A call is task.s(...), with its arguments."
    )


def _is_partial(on_failure: str, verb: str) -> bool:
    if on_failure not in ("fail", "partial"):
        raise InvalidOption("on_failure", on_failure, "must be 'fail' or 'partial'", subject=verb)
    return on_failure == "partial"


def _one_app(members: Sequence[Flow[Any]]) -> Mainspring | None:
    app = next((each.app for each in members if each.app is not None), None)
    for each in members:
        of_app(each, app)
    return app


def of_app(flow: Flow[Any], app: Mainspring | None) -> Flow[Any]:
    _refuse_planned(flow)
    if app is not None and flow.app is not None and flow.app is not app:
        hint = "One flow goes into one store: build it from the tasks of one app."
        raise InvalidOption("flow", flow, "is a call of another app", subject="a flow", hint=hint)
    return flow


def _refuse_planned(flow: Flow[Any]) -> None:
    if isinstance(flow, PlannedFlow):
        raise InvalidOption(
            "flow", flow, "cannot be a part of another flow", subject="a flow",
            hint="Options of a flow (.flow(...)) belong to the whole flow: give them last.",
        )  # fmt: skip


def _step(app: Mainspring | None, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any], verb: str) -> Step[Any]:
    """The call of a task whose first argument is a result."""
    if not is_task(task):
        hint = (
            "Declare the function with @app.task." if callable(task) else "The right side is a task, a call or a group."
        )
        raise InvalidOption("task", task, "is not a task", subject=f"flow {verb}", hint=hint)
    step: Step[Any] = (task if app is None else task.bound_to(app)).step(args, kwargs)
    return step


def _check_types(before: Flow[Any], step: Step[Any], *, each: bool = False) -> None:
    from mainspring.flows.types import check_takes

    check_takes(before, step, each=each)
