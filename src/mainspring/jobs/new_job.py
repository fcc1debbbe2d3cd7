"""From a call with options to the record of its job: what keys, tags, follow-ups and origins add."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from mainspring.codec import loads
from mainspring.common.ids import derived_id
from mainspring.errors import ArgumentError, InvalidOption
from mainspring.jobs.keys import Key, claim_of
from mainspring.jobs.query import parent_mark
from mainspring.jobs.records import FollowUp, JobBody, NewJob, UniqueKey
from mainspring.limits.declare import BoundLimit, bind, buckets_of
from mainspring.limits.records import Bucket
from mainspring.queues.fairness import FairKeys
from mainspring.queues.records import FairKey
from mainspring.schedules.records import part_mark
from mainspring.states import State

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.call import Call

FOLLOW_UPS = {"on_success": State.SUCCEEDED, "on_dead": State.DEAD, "on_cancel": State.CANCELLED}
"""The option that names a follow-up, and the state that it follows."""

_encode = msgspec.json.Encoder().encode


class ScheduleMembership(NamedTuple):
    """What the schedule on a task means for all jobs of the task."""

    name: str = ""
    bounds: tuple[BoundLimit, ...] = ()


NO_PART = ScheduleMembership()


class CallTarget(msgspec.Struct, frozen=True):
    """What a call needs to know of its task; for a call by name, all that is known of it."""

    name: str
    kind: str
    options: Mapping[str, Any]
    """Resolved task options; durations in microseconds."""
    decode: Callable[[bytes], Any]
    queue: str
    """Where its jobs go, after the app's routes."""
    arguments: Callable[[bytes], dict[str, Any]] | None = None
    """The arguments of an encoded call by name, defaults included; None if the signature is not known."""
    hide: tuple[str, ...] = ()
    bounds: tuple[BoundLimit, ...] = ()
    """Its limits, and where their keys come from."""
    part: str = ""
    """The schedule whose part all its jobs are, if there is one such."""
    plain: bool = True
    """Its options ask for nothing but the fields of a ``NewJob`` itself, which stand here for speed."""
    priority: int = 0
    expires: int | None = None
    crashes: int = 3
    early: bool = False

    @classmethod
    def of(
        cls, name: str, kind: str, options: Mapping[str, Any], decode: Callable[[bytes], Any], queue: str,
        arguments: Callable[[bytes], dict[str, Any]] | None = None, hide: tuple[str, ...] = (),
        part: ScheduleMembership = NO_PART,
    ) -> CallTarget:  # fmt: skip
        asks = any(options[each] for each in ("key", "tags", "meta", "retention", "limit", "breaker", *FOLLOW_UPS))
        bounds = (*bind(name, (*options["limit"], *options["breaker"]), f"task {name!r}"), *part.bounds)
        return cls(
            name, kind, options, decode, queue, arguments, hide, bounds, part.name,
            not asks and not hide and part == NO_PART,
            options["priority"], options["expires"], options["crashes"], options["ack"] == "early",
        )  # fmt: skip


class JobOrigin(NamedTuple):
    """Where a job comes from that another one made."""

    id: bytes
    """Its own id, derived from its parent's."""
    parent: UUID
    trace: str


class JobBuilder(NamedTuple):
    """A call on its way to become a job."""

    app: Mainspring
    target: CallTarget
    arguments: bytes
    given: Mapping[str, Any]
    code: str | None
    """Version of the code that enqueues it."""
    schedule: str | None = None
    """The schedule that it becomes the runs of."""

    def job(self, id: UUID, origin: JobOrigin | None = None) -> NewJob:
        """The record to insert, with its follow-ups."""
        trace = id.hex if origin is None else origin.trace
        new = self._record(id.bytes, origin, key_of(self.given, self.target.options))
        if self.target.part:
            new = msgspec.structs.replace(new, marks=(*new.marks, part_mark(self.target.part)))
        keys = self.app.tasks.fair.get(new.queue)
        if keys is not None:
            new = msgspec.structs.replace(new, fair=self._fair(keys))
        follows = tuple(self._follow_ups(id, trace))
        return msgspec.structs.replace(new, follows=follows) if follows else new

    def follow_up(self, origin: JobOrigin) -> NewJob:
        """The record of a job that follows another; it has no key, whatever a middleware wants, and no follow-ups."""
        return self._record(origin.id, origin, None)

    # ---- private ------------------------------------------------------------------------------

    def _record(self, id: bytes, origin: JobOrigin | None, key: Key | None) -> NewJob:
        own, task = self.given, self.target.options
        tags = tuple(dict.fromkeys((*task["tags"], *own.get("tags", ()))))
        meta = {**task["meta"], **own.get("meta", {})}
        unique, said = (None, None) if key is None else self._claim(key)
        if key is not None and key.mode in ("debounce", "throttle"):
            self._refuse_times(key)
        body = JobBody(
            args=msgspec.Raw(self.arguments),
            retries=own.get("retries"),
            timeout=(own["timeout"] or 0) if "timeout" in own else None,
            code=self.code,
            tags=tags,
            meta=msgspec.Raw(_encode(meta)) if meta else msgspec.UNSET,
            key=said,
            mode=None if key is None or key.mode == "once" else key.mode,
            hide=self.target.hide,
            parent=None if origin is None else str(origin.parent),
            trace=None if origin is None else origin.trace,
            schedule=self.schedule,
        )
        return NewJob(
            id=id,
            task=self.target.name,
            queue=own.get("queue") or self.target.queue,
            kind=self.target.kind,
            priority=own.get("priority", self.target.priority),
            delay=own.get("delay") or 0,
            run_at=own.get("run_at"),
            expires_in=own.get("expires", self.target.expires),
            crashes=self.target.crashes,
            early=self.target.early,
            record=_encode(body),
            unique=unique,
            marks=tags if origin is None else (*tags, parent_mark(origin.parent.bytes)),
            keep=task["retention"],
            buckets=self._buckets(),
        )

    def _buckets(self) -> tuple[Bucket, ...]:
        bounds = self.target.bounds
        return buckets_of(bounds, self._named_arguments, f"task {self.target.name!r}") if bounds else ()

    def _fair(self, keys: FairKeys) -> FairKey:
        declared = self.target.arguments is not None
        arguments = self._named_arguments() if declared else loads(self.arguments)
        return keys.of(arguments, self.target.name, declared=declared)

    def _named_arguments(self) -> Mapping[str, Any]:
        assert self.target.arguments is not None, "a task that is not known here has no limits"
        return self.target.arguments(self.arguments)

    def _claim(self, key: Key) -> tuple[UniqueKey, str]:
        return claim_of(key, self.target.name, lambda: self._arguments_by_name(key), self.target.hide)

    def _refuse_times(self, key: Key) -> None:
        for name in ("delay", "run_at"):
            if self.given.get(name):
                raise InvalidOption(
                    name, self.given[name], f"cannot be given with a key of mode={key.mode!r}",
                    subject=f"task {self.target.name!r}", hint="The window of the key says when such a job is due.",
                )  # fmt: skip

    def _arguments_by_name(self, key: Key) -> Mapping[str, Any]:
        if self.target.arguments is not None:
            return self.target.arguments(self.arguments)
        if key.keep:
            raise InvalidOption(
                "key", key, "needs to know the task's parameters", subject=f"task {self.target.name!r}",
                hint="keep= compares all arguments, also those left to their default: enqueue it where the task is.",
            )  # fmt: skip
        given: dict[str, Any] = loads(self.arguments)
        if not key.names or "@" in given or not given.keys() >= set(key.names):
            raise InvalidOption(
                "key", key, "needs to know the task's parameters", subject=f"task {self.target.name!r}",
                hint="Of a task that is not known here, name the key's arguments and give them by keyword.",
            )  # fmt: skip
        return given

    def _follow_ups(self, id: UUID, trace: str) -> list[FollowUp]:
        found = []
        for event, state in FOLLOW_UPS.items():
            wanted = self.target.options[event]
            if wanted is not None:
                origin = JobOrigin(derived_id(id.bytes, event.encode()), id, trace)
                subject = f"task {self.target.name!r}"
                call = _call_of(self.app, wanted, id, event, subject)
                check_follow_up(event, call, subject)
                found.append(FollowUp(state, self.app.through(call).making(self.code).follow_up(origin)))
        return found


def key_of(given: Mapping[str, Any], task: Mapping[str, Any]) -> Key | None:
    """The key of a job by its own options and those of its task."""
    key: Key | None = given["key"] if "key" in given else task["key"]
    return key


def check_follow_up(event: str, wanted: Any, subject: str) -> None:
    """Refuse a task or a call that cannot follow another job; of a task's name nothing is known here."""
    if getattr(wanted, "own_key", None) is not None:
        hint = "It is made once for each job that ends so; leave the key out, or enqueue a keyed job inside of it."
        raise InvalidOption(event, wanted, "cannot have key=", subject=subject, hint=hint)
    if limits := getattr(wanted, "limits", None):
        option = "breaker=" if all(limit.kind == "breaker" for limit in limits) else "limit="
        hint = "It is inserted without a look at limits: enqueue a limited job inside of it."
        raise InvalidOption(event, wanted, f"cannot have {option}", subject=subject, hint=hint)
    if getattr(wanted, "connection", None) is not None:
        hint = "It is inserted with the job that it follows, wherever that is."
        raise InvalidOption(event, wanted, "cannot have connection=", subject=subject, hint=hint)


def _call_of(app: Mainspring, wanted: Any, job: UUID, event: str, subject: str) -> Call[Any]:
    """The call that a follow-up stands for: of a task, a task's name, or the complete call itself."""
    try:
        if isinstance(wanted, str):
            known = app.tasks.find(wanted)
            return app.call(wanted, str(job)) if known is None else known.s(job)
        call: Call[Any] = wanted.bound_to(app).s(job) if hasattr(wanted, "s") else wanted
    except InvalidOption as error:
        raise InvalidOption(event, wanted, error.why, subject=subject, hint=error.hint) from None
    except ArgumentError as error:
        why = f"must take one argument, the UUID of the job that ended: {error.args[0]}"
        raise InvalidOption(event, wanted, why, subject=subject) from None
    if call.app is not app:
        raise InvalidOption(event, wanted, "is a call of another app", subject=subject)
    return call
