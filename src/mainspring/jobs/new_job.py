"""From a call to the record of its job, with options, unique key, tags, limits, follow-up jobs and parent.

The table of options says how each option travels (``Option.carried``). An option that travels in the record needs no
code here. The builder sees only the task's options that the table marks ``column`` or ``built``, so an option cannot
be used here and missed by the template of plain jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from uuid import UUID

import msgspec

from mainspring.codec import loads
from mainspring.common.callables import name_of
from mainspring.common.clock import to_datetime
from mainspring.common.ids import derived_id
from mainspring.errors import ArgumentError, InvalidOption
from mainspring.flows.shape import body_of
from mainspring.jobs.keys import Key, claim_of, refuse_placeholders
from mainspring.jobs.query import flow_mark, parent_mark
from mainspring.jobs.records import (
    ENDED_JOB,
    FLOW_KEEP,
    MOST_FOLLOW_UPS,
    Edge,
    FollowUp,
    JobBody,
    NewJob,
    UniqueKey,
)
from mainspring.limits.declare import BoundLimit, bind, buckets_of
from mainspring.limits.records import Bucket
from mainspring.options.table import RECORD_OPTIONS, check_key_expiry, expires_too_soon, options_for, show_value
from mainspring.queues.fairness import FairKeys
from mainspring.queues.records import FairKey
from mainspring.states import State
from mainspring.tasks.middleware import wrap_call

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.call import Call

FOLLOW_UPS = {"on_success": State.SUCCEEDED, "on_dead": State.DEAD, "on_cancel": State.CANCELLED}
"""The option that names a follow-up job, and the state of the job that it follows."""

_CLOCKS_DIFFER = 60_000_000
"""Microseconds by which the clock of a producer may differ from the store's."""

_encode = msgspec.json.Encoder().encode


class CallTarget(msgspec.Struct, frozen=True):
    """What a call needs to know about its task; for a call by name, all that is known about the task."""

    name: str
    kind: str
    options: Mapping[str, Any]
    """Resolved task options; durations in microseconds."""
    decode: Callable[[bytes], Any]
    queue: str
    """The queue of its jobs, after the app's routes."""
    arguments: Callable[[bytes], dict[str, Any]] | None = None
    """The arguments of an encoded call by name, defaults included; None if the signature is not known."""
    hide: tuple[str, ...] = ()
    """The arguments whose values are never shown."""
    bounds: tuple[BoundLimit, ...] = ()
    """The limits of its jobs, and where the keys of the limits come from."""
    template: NewJob | None = None
    """The job of a call with no options but the task's, without id and arguments; None if it depends on these."""

    carried: Mapping[str, Any] = {}
    """The task's options that its jobs carry: those that the table marks ``column`` or ``built``."""

    def __post_init__(self) -> None:
        names = (option.name for option in options_for("task") if option.carried in ("column", "built"))
        msgspec.structs.force_setattr(self, "carried", {name: self.options[name] for name in names})

    @classmethod
    def of(
        cls, name: str, kind: str, options: Mapping[str, Any], decode: Callable[[bytes], Any], queue: str,
        arguments: Callable[[bytes], dict[str, Any]] | None = None, hide: tuple[str, ...] = (),
        more_bounds: tuple[BoundLimit, ...] = (),
    ) -> CallTarget:  # fmt: skip
        bounds = (*bind(name, (*options["limit"], *options["breaker"]), f"task {name!r}"), *more_bounds)
        made = cls(name, kind, options, decode, queue, arguments, hide, bounds)
        if bounds or hide or not _at_default(options, "built"):
            return made
        template = JobBuilder(cast("Mainspring", None), made, b"{}", {}, None).record(b"", None, None)
        return msgspec.structs.replace(made, template=template)


def _at_default(options: Mapping[str, Any], carried: str) -> bool:
    return all(options[each.name] == each.default for each in options_for("task") if each.carried == carried)


class JobOrigin(NamedTuple):
    """The origin of a job that another job made."""

    id: bytes
    """The id of the new job, derived from its parent's id."""
    parent: UUID
    trace: str


class FollowUpChain(NamedTuple):
    """The jobs from the first job down to the next follow-up job."""

    ended: UUID
    """The id that the next follow-up job gets as its argument."""
    trace: str
    tasks: tuple[str, ...]
    made: list[str]
    """The tasks of all follow-up jobs of the first job, so far."""

    def extended(self, task: str, follow_up: str, event: str) -> FollowUpChain:
        """The chain behind a job of the task ``follow_up``, which follows a job of ``task``."""
        tasks, subject = (*self.tasks, task), f"task {task!r}"
        self.made.append(follow_up)
        if follow_up in tasks:
            why = f"makes a chain of follow-up jobs without end: {' -> '.join((*tasks, follow_up))}"
            hint = f"Leave the option out, and enqueue {follow_up!r} inside of the task {task!r}."
            raise InvalidOption(event, follow_up, why, subject=subject, hint=hint)
        if len(self.made) > MOST_FOLLOW_UPS:
            why = f"is one of more than {MOST_FOLLOW_UPS} follow-up jobs of one job of the task {tasks[0]!r}"
            hint = "The follow-up jobs of follow-up jobs count too. Leave some out, and enqueue them inside of a task."
            raise InvalidOption(event, follow_up, why, subject=subject, hint=hint)
        return FollowUpChain(ENDED_JOB, self.trace, tasks, self.made)


class FlowPlace(NamedTuple):
    """The place of a job in a flow."""

    flow: bytes
    """The root join."""
    after: tuple[Edge, ...] = ()
    before: tuple[bytes, ...] = ()
    inputs: Mapping[str, bytes] = {}
    """The parameters that get the result of a job or a join."""
    undoes: bool = False
    undoable: bool = False
    """See :class:`mainspring.jobs.records.JobBody`."""

    @property
    def marks(self) -> tuple[str, ...]:
        """The mark of all jobs of the flow, and that of its body."""
        return flow_marks(self.flow, undoable=self.undoable)


def flow_marks(flow: bytes, *, undoable: bool) -> tuple[str, ...]:
    """The marks of a job of this flow."""
    return (flow_mark(flow), flow_mark(body_of(flow))) if undoable else (flow_mark(flow),)


class JobBuilder(NamedTuple):
    """Makes the record of a job from a call."""

    app: Mainspring
    target: CallTarget
    arguments: bytes
    given: Mapping[str, Any]
    code: str | None
    """The version of the app that enqueues the job."""
    schedule: str | None = None
    """The schedule whose runs are made from this record."""
    place: FlowPlace | None = None
    """The place of the job in a flow."""

    def job(self, id: UUID, origin: JobOrigin | None = None) -> NewJob:
        """The record to insert, with its follow-ups."""
        trace = id.hex if origin is None else origin.trace
        new = self.record(id.bytes, origin, key_of(self.given, self.target.options))
        keys = self.app.tasks.fair.get(new.queue)
        if keys is not None:
            new = msgspec.structs.replace(new, fair=self._fair(keys))
        return self._with_follow_ups(new, FollowUpChain(id, trace, (), []))

    def follow_up(self, origin: JobOrigin, chain: FollowUpChain) -> NewJob:
        """The record of a follow-up job, with its follow-up jobs; ``chain`` has the tasks before it.

        It has no key, even if a middleware gives one. It names no limits: the worker that claims it first hands it
        back with the limits of its task, as it does for a job that was enqueued by name.
        """
        return self._with_follow_ups(self.record(origin.id, origin, None, limited=False), chain)

    def record(self, id: bytes, origin: JobOrigin | None, key: Key | None, *, limited: bool = True) -> NewJob:
        """The record without its fair key and follow-up jobs."""
        own, task = self.given, self.target.carried
        tags = tuple(dict.fromkeys((*task["tags"], *own.get("tags", ()))))
        meta = {**task["meta"], **own.get("meta", {})}
        if key is not None and key.value is not None and "{" in key.value:
            self._refuse_placeholders("key", (key.value,))
        unique, said = (None, None) if key is None else self._claim(key)
        if key is not None and key.mode in ("debounce", "throttle"):
            self._refuse_times(key)
            self._check_key_expiry(key, own.get("expires", task["expires"]))
        if own.get("run_at") is not None:
            self._check_expiry(own["run_at"], own.get("expires", task["expires"]))
        if own.get("tags"):
            self._refuse_placeholders("tags", own["tags"])
        place = self.place
        body = JobBody(
            args=msgspec.Raw(self.arguments),
            options={name: own[name] for name in own if name in RECORD_OPTIONS} if own else {},
            code=self.code,
            tags=tags,
            meta=msgspec.Raw(_encode(meta)) if meta else msgspec.UNSET,
            key=said,
            mode=None if key is None or key.mode == "once" else key.mode,
            hide=self.target.hide,
            parent=None if origin is None else str(origin.parent),
            trace=None if origin is None else origin.trace,
            schedule=self.schedule,
            flow=None if place is None else place.flow.hex(),
            after=() if place is None else tuple((edge.parent.hex(), edge.policy) for edge in place.after),
            before=() if place is None else tuple(join.hex() for join in place.before),
            inputs={} if place is None else {name: source.hex() for name, source in place.inputs.items()},
            undoes=place is not None and place.undoes,
            undoable=place is not None and place.undoable,
        )
        if place is not None:
            tags = (*tags, *place.marks)
        return NewJob(
            id=id,
            task=self.target.name,
            queue=own.get("queue") or self.target.queue,
            kind=self.target.kind,
            priority=own.get("priority", task["priority"]),
            delay=own.get("delay") or 0,
            run_at=own.get("run_at"),
            expires_in=own.get("expires", task["expires"]),
            crashes=task["crashes"],
            early=task["ack"] == "early",
            record=_encode(body),
            unique=unique,
            marks=tags if origin is None else (*tags, parent_mark(origin.parent.bytes)),
            keep=task["retention"] if place is None else FLOW_KEEP,
            after=() if place is None else place.after,
            before=() if place is None else place.before,
            buckets=self._buckets() if limited else (),
        )

    # ---- private ------------------------------------------------------------------------------

    def _buckets(self) -> tuple[Bucket, ...]:
        bounds = self.target.bounds
        try:
            return buckets_of(bounds, self._named_arguments, f"task {self.target.name!r}") if bounds else ()
        except InvalidOption as error:
            if self.place is not None and self.place.inputs:
                names = ", ".join(map(repr, self.place.inputs))
                error.hint = (
                    f"{names} is the result of another job, which is not known when the job is enqueued. Use an "
                    "argument that is given here, or .each(), which enqueues the jobs later."
                )
            raise

    def _fair(self, keys: FairKeys) -> FairKey:
        declared = self.target.arguments is not None
        arguments = self._named_arguments() if declared else loads(self.arguments)
        return keys.key_of(arguments, self.target.name, declared=declared)

    def _named_arguments(self) -> Mapping[str, Any]:
        assert self.target.arguments is not None, "only a task that is known here has limits"
        if self.place is not None and self.place.inputs:
            given: dict[str, Any] = loads(self.arguments)
            return given
        return self.target.arguments(self.arguments)

    def _claim(self, key: Key) -> tuple[UniqueKey, str]:
        return claim_of(key, self.target.name, lambda: self._arguments_by_name(key), self.target.hide)

    def _check_expiry(self, run_at: int, expires: int | None) -> None:
        """Refuse a job that expires before it may start. The clock of this process is not the store's: a minute is
        left for the difference."""
        if expires is not None and run_at > self.app.client.time_us() + expires + _CLOCKS_DIFFER:
            start = f"run_at={to_datetime(run_at).isoformat()}"
            raise expires_too_soon(expires, start).about(f"task {self.target.name!r}")

    def _check_key_expiry(self, key: Key, expires: int | None) -> None:
        try:
            check_key_expiry(key, expires)
        except InvalidOption as error:
            raise error.about(f"task {self.target.name!r}") from None

    def _refuse_placeholders(self, option: str, texts: Iterable[str]) -> None:
        """Refuse the name of an argument in braces: it would not be replaced."""
        if not any("{" in text for text in texts):
            return
        names = loads(self.arguments) if self.target.arguments is None else self.target.arguments(self.arguments)
        if (
            self.target.arguments is None and "@" in names
        ):  # a call by name: any name may be one of a positional argument
            names = None
        refuse_placeholders(option, texts, f"task {self.target.name!r}", names)

    def _refuse_times(self, key: Key) -> None:
        for name in ("delay", "run_at"):
            if self.given.get(name):
                given = str(to_datetime(self.given[name])) if name == "run_at" else show_value(name, self.given[name])
                raise InvalidOption(
                    name, given, f"cannot be given with a key of mode={key.mode!r}",
                    subject=f"task {self.target.name!r}",
                    hint="With this mode the window of the key decides when the job is due.",
                )  # fmt: skip

    def _arguments_by_name(self, key: Key) -> Mapping[str, Any]:
        if self.target.arguments is not None:
            return self.target.arguments(self.arguments)
        given: dict[str, Any] = loads(self.arguments)
        if key.value is not None:  # with keep=, the arguments are compared as they were given
            return given
        if not key.names or "@" in given or not given.keys() >= set(key.names):
            raise InvalidOption(
                "key", key, "needs to know the task's parameters", subject=f"task {self.target.name!r}",
                hint="The task is not declared here: name the arguments of the key, and give these by keyword.",
            )  # fmt: skip
        return given

    def _with_follow_ups(self, new: NewJob, chain: FollowUpChain) -> NewJob:
        follows = []
        for event, state in FOLLOW_UPS.items():
            wanted = self.target.carried[event]
            if wanted is not None:
                subject = f"task {self.target.name!r}"
                call = _call_of(self.app, wanted, chain.ended, event, subject)
                check_follow_up(event, call, subject)
                call = wrap_call(self.app.enqueue_middleware, call)
                origin = JobOrigin(derived_id(new.id, event.encode()), chain.ended, chain.trace)
                inner = chain.extended(self.target.name, call.task, event)
                follows.append(FollowUp(state, call.build(self.code).follow_up(origin, inner)))
        return msgspec.structs.replace(new, follows=tuple(follows)) if follows else new


def key_of(given: Mapping[str, Any], task: Mapping[str, Any]) -> Key | None:
    """The key of a job: from its own options, or else from the options of its task."""
    key: Key | None = given["key"] if "key" in given else task["key"]
    return key


def check_follow_up(event: str, wanted: Any, subject: str) -> None:
    """Refuse a task or a call that cannot be a follow-up job. The name of a task is not checked here."""
    if getattr(wanted, "own_key", None) is not None:
        hint = "A follow-up job is made once for each job that ends. Leave the key out, or enqueue a keyed job in it."
        raise InvalidOption(event, wanted, "cannot have key=", subject=subject, hint=hint)
    if getattr(wanted, "given", {}).get("connection") is not None:
        hint = "A follow-up job is inserted by the worker, in the step that ends the job before it."
        raise InvalidOption(event, wanted, "cannot have connection=", subject=subject, hint=hint)


def _how_to_follow(app: Mainspring, wanted: Any, event: str) -> str:
    task: Any = app.tasks.find(wanted) if isinstance(wanted, str) else wanted
    name = name_of(task.fn)
    return f"Write def {name}(job: UUID), with from uuid import UUID; or give a call: {event}={name}.s(...)."


def _call_of(app: Mainspring, wanted: Any, job: UUID, event: str, subject: str) -> Call[Any]:
    """The call of a follow-up job, which the option names by a task, the name of a task, or a complete call."""
    try:
        if isinstance(wanted, str):
            known = app.tasks.find(wanted)
            return app.call(wanted, str(job)) if known is None else known.s(job)
        call: Call[Any] = wanted.bound_to(app).s(job) if hasattr(wanted, "s") else wanted
    except InvalidOption as error:
        raise InvalidOption(event, wanted, error.why, subject=subject, hint=error.hint) from None
    except ArgumentError as error:
        why = f"must take one argument, the UUID of the job that ended: {error.args[0]}"
        raise InvalidOption(event, wanted, why, subject=subject, hint=_how_to_follow(app, wanted, event)) from None
    if call.app is not app:
        raise InvalidOption(event, wanted, "is a call of another app", subject=subject)
    return call
