"""Every option, declared once: name, type, default, meaning, check, and where it may be given.

From this table come the checks of ``@app.task``, ``task.options`` and the worker, the flags of the
command line and the reference page. The typed dictionaries below it serve type checkers; a test
holds them equal to the table. Nothing is ignored: an unknown option is an error with "did you mean",
one that belongs elsewhere says where, one of a later release says that it is not built.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict, get_args
from uuid import UUID

import msgspec

from mainspring.breakers import declare
from mainspring.breakers.declare import DeclaredBreaker, to_breaker
from mainspring.common.backoff import DEFAULT, Backoff, BackoffFunction
from mainspring.common.duration import Duration, format_duration
from mainspring.errors import InvalidOption, NotBuilt, UnknownOption
from mainspring.jobs.keys import Key, to_key
from mainspring.limits.declare import AnyLimit, to_limits
from mainspring.options import checks, schedule_checks
from mainspring.options.schedule_checks import Part, ScheduleGroup
from mainspring.queues.fairness import FairBy, FairWeights, to_fair_by, to_fair_weights
from mainspring.queues.queue import PLAIN, Queue

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from mainspring.jobs.call import Call

Scope = Literal["job", "task", "bulk", "worker", "queue", "breaker", "schedule"]
Priority = int | Literal["low", "normal", "high", "critical"]
By: TypeAlias = "str | Callable[[Any], Hashable] | None"
"""A part of the item, such as ``tenant`` or ``customer.region``, or a function of the item."""
ErrorClasses = type[Exception] | Sequence[type[Exception]]
FollowUp: TypeAlias = "TakesJobId | Call[Any] | str"
"""A task that takes the id of the job that ended, a complete call, or the name of such a task."""


class TakesJobId(Protocol):
    """A task that one id of a job can be given to."""

    name: str

    def s(self, job: UUID, /) -> Call[Any]: ...


class Option(msgspec.Struct, frozen=True):
    """One option. ``convert(value, name)`` gives the normal form or raises ``InvalidOption``."""

    name: str
    type: str
    default: Any
    doc: str
    scopes: frozenset[str]
    convert: Callable[[Any, str], Any]
    shown_default: str = ""


# ---- the table -------------------------------------------------------------------------------------

_RUN, _JOB_TASK, _JOB, _TASK, _TASK_RUN, _TASK_QUEUE, _BULK, _WORKER, _QUEUE, _BREAKER, _SCHEDULE = (
    frozenset(scopes)
    for scopes in (
        ("job", "task", "schedule"),
        ("job", "task"),
        ("job",),
        ("task",),
        ("task", "schedule"),
        ("task", "queue"),
        ("bulk",),
        ("worker",),
        ("queue",),
        ("breaker",),
        ("schedule",),
    )
)
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
HOUR = 3_600_000_000
SECOND = 1_000_000

# fmt: off
OPTIONS: tuple[Option, ...] = (
    Option("queue", "str | Queue", "default", "The queue that the job waits in.", _RUN, checks.queue_name),
    Option("priority", "Priority", 0, "-100 to 100, higher sooner; or low, normal, high, critical.",
           _RUN, checks.priority),
    Option("expires", "Duration | None", None, "Not started within this time of its enqueue: cancelled, never run.",
           _RUN, checks.span_or_none),
    Option("retries", "int", 5, "How often a failed job is tried again.", _RUN, checks.whole(0)),
    Option("timeout", "Duration | None", HOUR, "An attempt is ended after this time; None switches it off.",
           _RUN, checks.span_or_none, "1h"),
    Option("key", "str | Key | None", None, "One job at a time has this key; of this task.", _JOB_TASK, to_key),
    Option("tags", "Sequence[str]", (), "What the job can be found by; those of the job are added to the task's.",
           _RUN, checks.tags, "none"),
    Option("meta", "Mapping[str, Any]", {}, "Facts of your own that travel with the job; the job's over the task's.",
           _RUN, checks.meta, "none"),
    Option("delay", "Duration | None", None, "Run no earlier than this long from now.", _JOB, checks.wait_or_none),
    Option("run_at", "datetime | None", None, "Run no earlier than this moment (with a time zone).",
           _JOB, checks.moment),
    Option("connection", "Any", None, "Enqueue inside this connection's transaction.", _JOB, checks.anything),
    Option("name", "str | None", None, "The task's name; its module and qualified name if not given.",
           _TASK, checks.task_name),
    Option("aliases", "Sequence[str]", (), "Older names under which waiting jobs still find the task.",
           _TASK, checks.task_names),
    Option("executor", "Literal['async', 'thread'] | None", None,
           "Where it runs; async def on the loop and def in a thread if not given.", _TASK, checks.executor),
    Option("soft_timeout", "Duration | None", None, "SoftTimeout is raised in the handler after this time.",
           _TASK, checks.span_or_none),
    Option("backoff", "Backoff | Duration | BackoffFunction", DEFAULT, "The wait before each retry.",
           _TASK, checks.backoff,
           "5s x 4, cap 10m, full jitter"),
    Option("retry_on", "ErrorClasses", (Exception,), "Errors that may be retried.",
           _TASK, checks.error_classes, "Exception"),
    Option("never_retry_on", "ErrorClasses", (), "Errors that make the job dead at once.",
           _TASK, checks.error_classes, "none"),
    Option("retry_if", "Callable[[BaseException], bool] | None", None, "Asked last whether an error may be retried.",
           _TASK, checks.predicate),
    Option("crashes", "int", 3, "How many crashes of its process a job may cause before it is dead.",
           _TASK, checks.whole(1)),
    Option("ack", "Literal['late', 'early']", "late", "early: at most once, acknowledged before it runs.",
           _TASK, checks.choice("late", "early")),
    Option("fence", "Literal['auto', 'strict']", "auto", "strict: ended before anyone else could run the job.",
           _TASK, checks.choice("auto", "strict")),
    Option("result", "Literal['store', 'ignore']", "store", "Whether the result is kept.",
           _TASK, checks.choice("store", "ignore")),
    Option("retention", "Duration | None", None, "How long a succeeded or cancelled job is kept; else as the app says.",
           _TASK, checks.span_or_none),
    Option("on_success", "FollowUp | None", None, "A job to follow one that succeeded, inserted in the same step.",
           _TASK_RUN, checks.follow_up),
    Option("on_dead", "FollowUp | None", None, "A job to follow one that is dead, inserted in the same step.",
           _TASK_RUN, checks.follow_up),
    Option("on_cancel", "FollowUp | None", None, "A job to follow one that was cancelled or expired, likewise.",
           _TASK_RUN, checks.follow_up),
    Option("limit", "AnyLimit | Sequence[AnyLimit] | None", (),
           "How many of its jobs run at once or start in a time, in the whole fleet: Concurrency, Rate, a limiter.",
           _TASK_QUEUE, to_limits, "none"),
    Option("breaker", "DeclaredBreaker | BreakerOptions | None", (),
           "What stops its jobs while they fail again and again, in the whole fleet: a breaker, or options of one.",
           _TASK, to_breaker, "none"),
    Option("sensitive", "Sequence[str]", (), "Arguments whose values are shown to nobody.",
           _TASK, checks.argument_names, "none"),
    Option("needs", "Collection[str]", (), "Labels that a worker must have to run its jobs: all of them.",
           _TASK, checks.needs, "none"),
    Option("pin_version", "bool", False, "Only workers of the version (of the app) that enqueued a job run it.",
           _TASK, checks.flag),
    Option("size", "int", 100, "Most items of one call.", _BULK, checks.whole(1, 10_000)),
    Option("wait", "Duration", 50_000, "From the first item until the call starts, if it is not full before.",
           _BULK, checks.wait, "50ms"),
    Option("by", "By", None, "Only items with equal values share a call: a part of the item, or a function of it.",
           _BULK, checks.by),
    Option("queues", "Sequence[str] | str | None", None,
           "Queues to serve; all that its tasks use, and default, if not given.",
           _WORKER, checks.queue_names, "all"),
    Option("processes", "int", 1, "Worker processes.", _WORKER, checks.processes),
    Option("async_slots", "int", 64, "Async jobs at once in each process.", _WORKER, checks.whole(0)),
    Option("thread_slots", "int", min(32, 4 * _CORES), "Jobs in threads at once in each process.",
           _WORKER, checks.whole(0),
           "min(32, 4 x cores)"),
    Option("concurrency", "Mapping[str, int]", {}, "Most jobs of a queue at once in each process.",
           _WORKER, checks.concurrency, "none"),
    Option("lease", "Duration", 15 * SECOND, "A worker silent so long has lost its jobs; it beats each third of it.",
           _WORKER, checks.span, "15s"),
    Option("drain", "Duration", 25 * SECOND, "How long running jobs may take to finish when the worker stops.",
           _WORKER, checks.wait, "25s"),
    Option("until_empty", "bool", False, "Stop when no job is left.", _WORKER, checks.flag),
    Option("poll", "Duration", SECOND, "Look for work at least so often.", _WORKER, checks.span, "1s"),
    Option("sweep", "Duration", 3 * SECOND, "Look for lost workers so often.", _WORKER, checks.span, "3s"),
    Option("grace", "Duration", 5 * SECOND, "From asking a process to end until it is killed.",
           _WORKER, checks.span, "5s"),
    Option("roles", "Sequence[str] | str", checks.ALL_ROLES,
           "worker: runs jobs; scheduler: runs none and serves the fleet; api: neither; all.",
           _WORKER, checks.roles, "all"),
    Option("labels", "Collection[str] | str", (), "What it has to offer to tasks that say what they need.",
           _WORKER, checks.labels, "none"),
    Option("weight", "float", 1, "Its share of the claims of a worker that serves several queues, all with work.",
           _QUEUE, checks.weight),
    Option("max_depth", "int | None", PLAIN["max_depth"], "Most jobs that may wait in it.", _QUEUE, checks.depth),
    Option("on_full", "Literal['error', 'wait', 'drop_oldest']", PLAIN["on_full"],
           "What an enqueue does when that many wait: QueueFull, wait for room (see full_wait), or cancel the oldest.",
           _QUEUE, checks.choice("error", "wait", "drop_oldest")),
    Option("order", "Literal['fifo', 'lifo']", PLAIN["order"],
           "Of equal priority the oldest first, or the newest.", _QUEUE, checks.choice("fifo", "lifo")),
    Option("fair_by", "FairBy | None", None,
           "Whose a job is: claims are shared between the values of this argument, path or function of the arguments.",
           _QUEUE, to_fair_by),
    Option("fair_weights", "FairWeights | None", None, "The weights of these values: by value, or a function of it.",
           _QUEUE, to_fair_weights),
    Option("failures", "int", 5, "It opens after so many failures in a row.", _BREAKER, checks.whole(1)),
    Option("rate", "float | None", None, "Instead of those in a row: it opens when this share of calls fails.",
           _BREAKER, declare.share),
    Option("minimum", "int", 20, "With rate: not before so many calls.", _BREAKER, checks.whole(1)),
    Option("over", "Duration", 60 * SECOND, "With rate: the calls of this time count.", _BREAKER, checks.span, "1m"),
    Option("open_for", "Duration", 30 * SECOND, "How long it stays open before it is tried again.",
           _BREAKER, checks.span, "30s"),
    Option("probes", "int", 1, "How many run at once to try it again.", _BREAKER, checks.whole(1)),
    Option("trip_on", "ErrorClasses", (), "Errors that count; those that may be retried if not given.",
           _BREAKER, checks.error_classes, "those that may be retried"),
    Option("fallback", "Callable[..., Any] | None", None,
           "What a function that it decorates returns while it is open: called with the same arguments.",
           _BREAKER, declare.function),
    Option("mode", "Literal['scheduled', 'triggered', 'continuous']", "scheduled",
           "scheduled: by cron, every, at or after; triggered: by hand alone; continuous: again after each run.",
           _SCHEDULE, checks.choice("scheduled", "triggered", "continuous")),
    Option("tz", "str | ZoneInfo | None", None, "The time zone of cron.", _SCHEDULE, schedule_checks.zone, "UTC"),
    Option("start", "datetime | None", None, "Nothing is due before this moment.", _SCHEDULE, checks.moment),
    Option("end", "datetime | None", None, "Nothing is due from this moment on.", _SCHEDULE, checks.moment),
    Option("jitter", "Duration | None", 0, "Each run is put off by up to so long, chosen by name and moment.",
           _SCHEDULE, schedule_checks.wait_or_nothing, "none"),
    Option("overlap", "Literal['skip', 'queue', 'allow', 'cancel_previous']", "skip",
           "What an occurrence does while the run before it has not ended.",
           _SCHEDULE, checks.choice("skip", "queue", "allow", "cancel_previous")),
    Option("misfire", "Literal['skip', 'once', 'all']", "once",
           "What becomes of occurrences that nobody saw to in time; all: of the last 100.",
           _SCHEDULE, checks.choice("skip", "once", "all")),
    Option("depends_on", "Part | Sequence[Part]", (),
           "Schedules that must each have succeeded since the last start of this one.",
           _SCHEDULE, schedule_checks.parts, "none"),
    Option("blocks", "Part | Sequence[Part]", (),
           "Schedules that do not run while this one does, nor it while they do.",
           _SCHEDULE, schedule_checks.parts, "none"),
    Option("max_failures", "int", 5, "So many failed runs in a row disable it; 0: never.",
           _SCHEDULE, checks.whole(0, schedule_checks.MOST_FAILURES)),
    Option("reenable_after", "Duration | None", 600 * SECOND,
           "When one that failures disabled is tried again; twice as long each time, up to 6h. None: by hand alone.",
           _SCHEDULE, schedule_checks.span_or_never, "10m"),
    Option("group", "str | ScheduleGroup | None", None,
           "Shares max_concurrent of app.schedules.group(...) with others.",
           _SCHEDULE, schedule_checks.group),
    Option("min_pause", "Duration", SECOND, "Of mode continuous: from the end of a run to the next.",
           _SCHEDULE, checks.wait, "1s"),
    Option("history", "int", 100, "So many of its occurrences are remembered, the latest.",
           _SCHEDULE, checks.whole(1, schedule_checks.HISTORY_LIMIT)),
    Option("immediate", "bool", False, "With every: due at once when it is first stored.", _SCHEDULE, checks.flag),
)

NOT_BUILT: dict[str, frozenset[str]] = {
    **dict.fromkeys(("pool", "memory_limit", "cpu_limit"), _TASK),
}
# fmt: on


class JobOptions(TypedDict, total=False):
    """Options of one job: ``task.options(...)``."""

    queue: str | Queue
    priority: Priority
    expires: Duration | None
    retries: int
    timeout: Duration | None
    key: str | Key | None
    tags: Sequence[str]
    meta: Mapping[str, Any]
    delay: Duration | None
    run_at: datetime | None
    connection: Any


class TaskOptions(TypedDict, total=False):
    """Options of a task: ``@app.task(...)``."""

    queue: str | Queue
    priority: Priority
    expires: Duration | None
    retries: int
    timeout: Duration | None
    key: str | Key | None
    tags: Sequence[str]
    meta: Mapping[str, Any]
    name: str | None
    aliases: Sequence[str]
    executor: Literal["async", "thread"] | None
    soft_timeout: Duration | None
    backoff: Backoff | Duration | BackoffFunction
    retry_on: ErrorClasses
    never_retry_on: ErrorClasses
    retry_if: Callable[[BaseException], bool] | None
    crashes: int
    ack: Literal["late", "early"]
    fence: Literal["auto", "strict"]
    result: Literal["store", "ignore"]
    retention: Duration | None
    on_success: FollowUp | None
    on_dead: FollowUp | None
    on_cancel: FollowUp | None
    limit: AnyLimit | Sequence[AnyLimit] | None
    breaker: DeclaredBreaker | BreakerOptions | None
    sensitive: Sequence[str]
    needs: Collection[str]
    pin_version: bool


class WorkerOptions(TypedDict, total=False):
    """Options of a worker: ``app.run(...)``, ``app.worker(...)`` and the command line."""

    queues: Sequence[str] | str | None
    processes: int
    async_slots: int
    thread_slots: int
    concurrency: Mapping[str, int]
    lease: Duration
    drain: Duration
    until_empty: bool
    poll: Duration
    sweep: Duration
    grace: Duration
    roles: Sequence[str] | str
    labels: Collection[str] | str


class QueueOptions(TypedDict, total=False):
    """Options of a queue: ``app.queue(...)``."""

    weight: float
    max_depth: int | None
    on_full: Literal["error", "wait", "drop_oldest"]
    order: Literal["fifo", "lifo"]
    limit: AnyLimit | Sequence[AnyLimit] | None
    fair_by: FairBy | None
    fair_weights: FairWeights | None


class BreakerOptions(TypedDict, total=False):
    """Options of a breaker: ``app.breaker(...)``, or ``breaker=`` of a task."""

    failures: int
    rate: float | None
    minimum: int
    over: Duration
    open_for: Duration
    probes: int
    trip_on: ErrorClasses
    fallback: Callable[..., Any] | None


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule: ``@app.schedule(...)``, ``app.schedules.put(...)``; those of its runs over the task's."""

    queue: str | Queue
    priority: Priority
    expires: Duration | None
    retries: int
    timeout: Duration | None
    tags: Sequence[str]
    meta: Mapping[str, Any]
    on_success: FollowUp | None
    on_dead: FollowUp | None
    on_cancel: FollowUp | None
    mode: Literal["scheduled", "triggered", "continuous"]
    tz: str | ZoneInfo | None
    start: datetime | None
    end: datetime | None
    jitter: Duration | None
    overlap: Literal["skip", "queue", "allow", "cancel_previous"]
    misfire: Literal["skip", "once", "all"]
    depends_on: Part | Sequence[Part]
    blocks: Part | Sequence[Part]
    max_failures: int
    reenable_after: Duration | None
    group: str | ScheduleGroup | None
    min_pause: Duration
    history: int
    immediate: bool


_ADDING = frozenset({"tags", "meta"})
"""What is given later adds to what was given before."""

# ---- use -------------------------------------------------------------------------------------------

_BY_SCOPE = {scope: {o.name: o for o in OPTIONS if scope in o.scopes} for scope in get_args(Scope)}
_DEFAULTS = {scope: {o.name: o.default for o in found.values()} for scope, found in _BY_SCOPE.items()}


def resolve_options(
    scope: Scope, given: Mapping[str, object], *, base: Mapping[str, object] | None = None, subject: str = ""
) -> dict[str, Any]:
    """The options in normal form: the defaults of the scope, ``base`` over them, ``given`` over both.

    Durations become whole microseconds, ``run_at`` microseconds since 1970, a priority its number,
    error classes a tuple, ``backoff`` a ``Backoff``. ``subject`` says in errors whose options they are.
    """
    resolved: dict[str, Any] = {**_DEFAULTS[scope], **(base or {})}
    table_of = _BY_SCOPE[scope]
    try:
        for name, value in given.items():
            option = table_of.get(name)
            if option is None:
                raise _refusal(scope, name, subject or scope)
            resolved[name] = option.convert(value, name)
        _cross_check(resolved, given)
    except InvalidOption as error:
        raise (error.about(subject) if subject and not error.subject else error) from None
    return resolved


def overlay_options(
    given: Mapping[str, object], *, task: Mapping[str, object], before: Mapping[str, object], subject: str
) -> dict[str, Any]:
    """Only what was given for one job, in normal form, over what was given ``before``; checked against the task's."""
    resolved = resolve_options("job", given, base={**task, **before}, subject=subject)
    own = {**before, **{name: resolved[name] for name in given}}
    for name in _ADDING & given.keys():
        own[name] = checks.added(name, before.get(name), own[name])
        try:
            checks.added(name, task.get(name), own[name])
        except InvalidOption as error:
            raise error.about(subject) from None
    return own


def options_for(scope: Scope) -> tuple[Option, ...]:
    """The options of a scope, for documentation and flags."""
    return tuple(_BY_SCOPE[scope].values())


def beat_us(lease_us: int) -> int:
    """How often a worker beats: three times in a lease."""
    return lease_us // 3


def _refusal(scope: str, name: str, subject: str) -> UnknownOption | NotBuilt:
    if scope in NOT_BUILT.get(name, ()):
        return NotBuilt(subject, name)
    elsewhere = [other for other, options in _BY_SCOPE.items() if name in options]
    where = {
        "job": "task.options(...)", "task": "@app.task(...)", "worker": "the worker: app.run(...)",
        "bulk": "@app.bulk_task(...)", "queue": "app.queue(...)", "breaker": "app.breaker(...)",
        "schedule": "@app.schedule(...)",
    }  # fmt: skip
    hint = f"{name!r} is an option of {' and '.join(where[other] for other in elsewhere)}." if elsewhere else ""
    return UnknownOption(subject, name, _BY_SCOPE[scope], hint=hint)


def _cross_check(resolved: Mapping[str, Any], given: Mapping[str, object]) -> None:
    if resolved.get("delay") is not None and resolved.get("run_at") is not None:
        raise InvalidOption(
            "delay",
            given.get("delay") or format_duration(resolved["delay"] / SECOND),
            "cannot be given together with run_at",
            hint="delay counts from now: choose one.",
        )
    soft, hard = resolved.get("soft_timeout"), resolved.get("timeout")
    if soft is not None and hard is not None and soft >= hard:
        name = "soft_timeout" if "soft_timeout" in given else "timeout"
        raise InvalidOption(
            name,
            given.get(name),
            "soft_timeout must be shorter than timeout",
            hint="Leave time between them to tidy up.",
        )
    for wanted in resolved.get("retry_on", ()):
        for never in resolved.get("never_retry_on", ()):
            if issubclass(wanted, never):
                raise InvalidOption(
                    "never_retry_on",
                    never,
                    f"leaves nothing of retry_on {wanted.__name__}",
                    hint="Name in never_retry_on only what is narrower than retry_on; retries=0 means never.",
                )
