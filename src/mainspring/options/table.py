"""Every option, declared once: name, type, default, meaning, check, where it may be given, and how a job carries it.

From this table come the checks of ``@app.task``, ``task.options`` and the worker, the flags of ``mainspring enqueue``
and ``mainspring worker``, the record of a job, the reference page, and the typed dictionaries in :mod:`.typed`
(``python -m tools.reference`` writes the last two). No option is ignored: an unknown option is an error with
"did you mean", an option of another place says where it belongs, and an option of a later release says that it is not
built yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, get_args

import msgspec

from mainspring.breakers.declare import declare_breaker, to_breaker
from mainspring.common.backoff import DEFAULT
from mainspring.common.duration import format_duration
from mainspring.common.handles import foreign_hint, later_hint
from mainspring.errors import BreakerOpen, InvalidOption, NotBuilt, UnknownOption
from mainspring.jobs.keys import Key, to_key
from mainspring.limits.declare import to_limits
from mainspring.options import checks
from mainspring.queues.fairness import to_fair_by, to_fair_weights
from mainspring.queues.queue import PLAIN

Scope = Literal["job", "task", "bulk", "worker", "queue", "breaker", "schedule", "pool"]
Carried = Literal["record", "column", "built", "call"]


class Option(msgspec.Struct, frozen=True):
    """One option. ``convert(value, name)`` returns the normal form or raises ``InvalidOption``."""

    name: str
    type: str
    """The type as a text, for the typed dictionaries, the reference page and the flags."""
    default: Any
    """In normal form."""
    doc: str
    """One sentence, shown in ``--help``, ``explain`` and the reference page."""
    scopes: frozenset[str]
    convert: Callable[[Any, str], Any]
    shown_default: str = ""
    """The default as people read it, if its normal form is not readable."""
    carried: Carried = "record"
    """How a job carries the option.

    ``record``: a value given for one job is written into the job's record, and so must be JSON in its normal form. A
    value given for the task stays in the code of the task, where the worker reads it. The option needs no other code
    until the worker obeys it: it is ``body.options`` there, and ``spec.options`` for the task's value.
    ``column``: the value is a field of ``NewJob`` that is the same for all jobs of a task.
    ``built``: ``jobs/new_job.py`` builds something from it for each job, from the arguments or the id.
    ``call``: only the enqueue itself uses it.
    """
    flag: str | None = ""
    """The flag of the command line if it is not ``--name``; None for an option without a flag."""


def _breaker(value: Any, name: str) -> Any:
    """A breaker, or the options of one, which are in this table as well."""
    if isinstance(value, Mapping):
        value = declare_breaker("", resolve_options("breaker", value), value, "")
    return to_breaker(value, name)


# ---- the table -------------------------------------------------------------------------------------

_RUN, _JOB_TASK, _JOB, _TASK, _TASK_RUN, _TASK_QUEUE, _BULK, _WORKER, _QUEUE, _BREAKER, _SCHEDULE, _POOL = (
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
        ("pool",),
    )
)
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
HOUR = 3_600_000_000
SECOND = 1_000_000

# fmt: off
OPTIONS: tuple[Option, ...] = (
    Option("queue", "str | Queue", "default", "The queue that the job waits in.", _RUN, checks.queue_name,
           carried="column"),
    Option("priority", "Priority", 0,
           "A number from -100 to 100, or low, normal, high, critical; jobs with a higher priority start first.",
           _RUN, checks.priority, carried="column"),
    Option("expires", "Duration | None", None,
           "Cancel the job if it has not started within this time after its enqueue. Retries are not limited.",
           _RUN, checks.span_or_none, carried="column"),
    Option("retries", "int", 5, "How many times a failed job is retried.", _RUN, checks.whole(0)),
    Option("timeout", "Duration | None", HOUR, "End an attempt after this time; None sets no time limit.",
           _RUN, checks.span_or_none, "1h"),
    Option("key", "str | Key | None", None, "A unique key: only one live job of the task has it.",
           _JOB_TASK, to_key, carried="built"),
    Option("tags", "Sequence[str]", (), "Tags to find the job by; the tags of a job are added to the tags of its task.",
           _RUN, checks.tags, "none", carried="built", flag="--tag"),
    Option("meta", "Mapping[str, Any]", {},
           "JSON values of your own that are stored with the job; a value of the job replaces the value of the task.",
           _RUN, checks.meta, "none", carried="built"),
    Option("delay", "Duration | None", None, "Start the job no earlier than this time from now.",
           _JOB, checks.wait_or_none, carried="column"),
    Option("run_at", "datetime | None", None, "Start the job no earlier than this moment, which has a time zone.",
           _JOB, checks.moment, carried="column"),
    Option("connection", "Any", None, "Enqueue the job in the transaction of this database connection.",
           _JOB, checks.anything, carried="call", flag=None),
    Option("name", "str | None", None, "The name of the task; without it, the module and the qualified name.",
           _TASK, checks.task_name),
    Option("aliases", "Sequence[str]", (), "Older names of the task, so that waiting jobs still find it.",
           _TASK, checks.task_names),
    Option("executor", "Literal['async', 'thread', 'process'] | None", None,
           "Where the task runs; without it, async def runs on the event loop and def in a thread.",
           _TASK, checks.choice("async", "thread", "process", None)),
    Option("pool", "str | ProcessPool | None", None,
           "With executor='process': the pool of child processes that the task runs in.",
           _TASK, checks.pool_or_none, "default"),
    Option("soft_timeout", "Duration | None", None, "Raise SoftTimeout in the handler after this time.",
           _TASK, checks.span_or_none),
    Option("backoff", "Backoff | Duration | BackoffFunction", DEFAULT, "The wait before each retry.",
           _TASK, checks.backoff, "5s x 4, cap 10m, full jitter"),
    Option("retry_on", "ErrorClasses", (Exception,), "Exceptions that are retried.",
           _TASK, checks.error_classes, "Exception"),
    Option("never_retry_on", "ErrorClasses", (), "Exceptions that make the job dead at once.",
           _TASK, checks.error_classes, "none"),
    Option("retry_if", "Callable[[BaseException], bool] | None", None,
           "A function that is called last and decides whether an exception is retried.", _TASK, checks.predicate),
    Option("crashes", "int", 3, "How many times a job may crash its process before the job is dead.",
           _TASK, checks.whole(1), carried="column"),
    Option("ack", "Literal['late', 'early']", "late",
           "With early, the job is acknowledged before it runs, and so runs at most once.",
           _TASK, checks.choice("late", "early"), carried="column"),
    Option("fence", "Literal['auto', 'strict']", "auto",
           "With strict, the attempt is ended before another worker can run the job.",
           _TASK, checks.choice("auto", "strict")),
    Option("result", "Literal['store', 'ignore']", "store", "Whether the result is stored.",
           _TASK, checks.choice("store", "ignore")),
    Option("retention", "Duration | None", None,
           "How long a succeeded or cancelled job is kept; without it, the app's retention applies.",
           _TASK, checks.span_or_none, carried="column"),
    Option("on_success", "FollowUp | None", None,
           "A follow-up job, inserted in the same step when the job has succeeded.",
           _TASK_RUN, checks.follow_up, carried="built"),
    Option("on_dead", "FollowUp | None", None, "A follow-up job, inserted in the same step when the job is dead.",
           _TASK_RUN, checks.follow_up, carried="built"),
    Option("on_cancel", "FollowUp | None", None,
           "A follow-up job, inserted in the same step when the job was cancelled or has expired.",
           _TASK_RUN, checks.follow_up, carried="built"),
    Option("limit", "AnyLimit | Sequence[AnyLimit] | None", (),
           "How many jobs run at once, or start in a period, in the whole fleet: Concurrency, Rate or a limiter.",
           _TASK_QUEUE, to_limits, "none", carried="built"),
    Option("breaker", "DeclaredBreaker | BreakerOptions | None", (),
           "A breaker, or its options: the fleet starts no jobs of the task for a time after too many failures.",
           _TASK, _breaker, "none", carried="built"),
    Option("sensitive", "Sequence[str]", (), "Arguments whose values are never shown.",
           _TASK, checks.argument_names, "none", carried="built"),
    Option("needs", "Collection[str]", (), "Labels that a worker must have, all of them, to run the job.",
           _TASK, checks.needs, "none"),
    Option("pin_version", "bool", False, "Run a job only on workers with the app version that enqueued it.",
           _TASK, checks.flag),
    Option("size", "int", 100, "The maximum number of items in one call.", _BULK, checks.whole(1, 10_000)),
    Option("wait", "Duration", 50_000, "How long the first item waits for the call to be full.",
           _BULK, checks.wait, "50ms"),
    Option("by", "By", None,
           "Put only items with equal values into one call: an attribute path of the item, or a function of it.",
           _BULK, checks.by),
    Option("queues", "Sequence[str] | str | None", None,
           "The queues to serve; without it, default and all queues that the tasks use.",
           _WORKER, checks.queue_names, "all"),
    Option("processes", "int", 1, "The number of worker processes.", _WORKER, checks.processes),
    Option("async_slots", "int", 64, "How many async jobs each process runs at once.", _WORKER, checks.whole(0)),
    Option("thread_slots", "int", min(32, 4 * _CORES), "How many jobs each process runs at once in threads.",
           _WORKER, checks.whole(0), "min(32, 4 x cores)"),
    Option("process_slots", "int", _CORES,
           "How many jobs each process runs at once in child processes of the default pool.",
           _WORKER, checks.whole(0), "cores"),
    Option("concurrency", "int | Mapping[str, int]", {},
           "How many jobs each process runs at once in all its slots; or, by queue, how many jobs of the queue.",
           _WORKER, checks.concurrency, "none"),
    Option("lease", "Duration", 15 * SECOND,
           "A worker without a heartbeat for this time loses its jobs; it sends three heartbeats in this time.",
           _WORKER, checks.span, "15s"),
    Option("drain", "Duration", 25 * SECOND, "How long running jobs may take to finish when the worker stops.",
           _WORKER, checks.wait, "25s"),
    Option("burst", "bool", False, "Stop when no job is ready or running.", _WORKER, checks.flag),
    Option("until_empty", "bool", False, "Stop when no job is left, also none that is scheduled or retrying.",
           _WORKER, checks.flag),
    Option("poll", "Duration", 2 * SECOND,
           "The longest time between two looks for ready jobs. With more than 40 workers it grows, up to 5s.",
           _WORKER, checks.span, "2s"),
    Option("sweep", "Duration", 3 * SECOND, "The time between two looks for lost workers.",
           _WORKER, checks.span, "3s"),
    Option("grace", "Duration", 5 * SECOND, "How long a process may take to end before it is killed.",
           _WORKER, checks.span, "5s"),
    Option("roles", "Sequence[str] | str", checks.ALL_ROLES,
           "A worker runs jobs, a scheduler runs the services of the fleet, api runs neither; or all.",
           _WORKER, checks.roles, "all"),
    Option("labels", "Collection[str] | str", (), "Labels of the worker, for tasks with the option needs.",
           _WORKER, checks.labels, "none"),
    Option("weight", "float", 1, "The share of the queue in the claims of a worker that serves several busy queues.",
           _QUEUE, checks.weight),
    Option("max_depth", "int | None", PLAIN["max_depth"], "The maximum number of jobs that wait in the queue.",
           _QUEUE, checks.depth),
    Option("on_full", "Literal['error', 'wait', 'drop_oldest']", PLAIN["on_full"],
           "What an enqueue does at max_depth: raise QueueFull, wait (see full_wait), or cancel the oldest job.",
           _QUEUE, checks.choice("error", "wait", "drop_oldest")),
    Option("order", "Literal['fifo', 'lifo']", PLAIN["order"],
           "Which of two jobs with equal priority starts first: the older (fifo) or the newer (lifo).",
           _QUEUE, checks.choice("fifo", "lifo")),
    Option("fair_by", "FairBy | None", None,
           "Share the claims between the values of an argument, of a path into it, or of a function of the arguments.",
           _QUEUE, to_fair_by),
    Option("fair_weights", "FairWeights | None", None,
           "The weights of these values: a mapping by value, or a function of the value.",
           _QUEUE, to_fair_weights),
    Option("failures", "int", 5, "Open the breaker after this number of consecutive failures.",
           _BREAKER, checks.whole(1)),
    Option("rate", "float | None", None,
           "Open the breaker when this share of the calls fails, instead of after consecutive failures.",
           _BREAKER, checks.share),
    Option("minimum", "int", 20, "With rate: the minimum number of calls before the breaker can open.",
           _BREAKER, checks.whole(1)),
    Option("over", "Duration", 60 * SECOND, "With rate: the period in which calls are counted.",
           _BREAKER, checks.span, "1m"),
    Option("open_for", "Duration", 30 * SECOND, "How long the breaker stays open before probes are allowed.",
           _BREAKER, checks.span, "30s"),
    Option("probes", "int", 1, "How many probes run at once after that time.", _BREAKER, checks.whole(1)),
    Option("trip_on", "ErrorClasses", (), "Exceptions that count as failures; without it, exceptions that are retried.",
           _BREAKER, checks.error_classes, "exceptions that are retried"),
    Option("fallback", "Callable[..., Any] | None", None,
           "A function that a decorated function calls instead, with the same arguments, while the breaker is open.",
           _BREAKER, checks.fallback),
    Option("mode", "Literal['scheduled', 'triggered', 'continuous']", "scheduled",
           "When runs start: scheduled by cron, every, at or after; triggered by hand only; continuous after each run.",
           _SCHEDULE, checks.choice("scheduled", "triggered", "continuous")),
    Option("tz", "str | ZoneInfo | None", None, "The time zone of cron.", _SCHEDULE, checks.zone, "UTC"),
    Option("start", "datetime | None", None, "No run is due before this moment.", _SCHEDULE, checks.moment),
    Option("end", "datetime | None", None, "No run is due at or after this moment.", _SCHEDULE, checks.moment),
    Option("jitter", "Duration | None", 0,
           "Delay each run by up to this time; the delay is computed from the schedule's name and the due moment.",
           _SCHEDULE, checks.wait_or_nothing, "none"),
    Option("overlap", "Literal['skip', 'queue', 'allow', 'cancel_previous']", "skip",
           "What happens to an occurrence that is due while the run before it has not ended.",
           _SCHEDULE, checks.choice("skip", "queue", "allow", "cancel_previous")),
    Option("misfire", "Literal['skip', 'once', 'all']", "once",
           "Which occurrences that were missed are run later: none, one, or all of the last 100.",
           _SCHEDULE, checks.choice("skip", "once", "all")),
    Option("depends_on", "Part | Sequence[Part]", (),
           "Schedules that must each have succeeded since the last start of this schedule before it starts again.",
           _SCHEDULE, checks.parts, "none"),
    Option("blocks", "Part | Sequence[Part]", (),
           "Schedules that never run at the same time as this schedule.",
           _SCHEDULE, checks.parts, "none"),
    Option("max_failures", "int", 5,
           "Disable the schedule after this number of consecutive failed runs; 0 never disables it.",
           _SCHEDULE, checks.whole(0, checks.MOST_FAILURES)),
    Option("reenable_after", "Duration | None", 600 * SECOND,
           "When a schedule disabled by failures is enabled again; doubles each time, up to 6h; None means never.",
           _SCHEDULE, checks.span_or_never, "10m"),
    Option("group", "str | ScheduleGroup | None", None,
           "The group whose max_concurrent the schedule shares: app.schedules.group(...).",
           _SCHEDULE, checks.group),
    Option("min_pause", "Duration", SECOND, "With mode continuous: the time between the end of a run and the next run.",
           _SCHEDULE, checks.wait, "1s"),
    Option("history", "int", 100, "How many of the latest occurrences are stored.",
           _SCHEDULE, checks.whole(1, checks.HISTORY_LIMIT)),
    Option("min", "int", 1, "How many children are kept ready.", _POOL, checks.whole(0, 1_000)),
    Option("max", "int", 1, "The maximum number of children.", _POOL, checks.whole(1, 1_000)),
    Option("max_jobs_per_child", "int | None", None, "Replace a child after this number of jobs.",
           _POOL, checks.whole_or_none(1)),
    Option("max_memory_per_child", "Size | None", None,
           "Replace a child after the job at whose end it uses more memory than this.", _POOL, checks.size_or_none),
    Option("max_age", "Duration | None", None, "Replace a child that is older than this, when it runs no job.",
           _POOL, checks.span_or_none),
    Option("immediate", "bool", False, "With every: the first run is due when the schedule is stored.",
           _SCHEDULE, checks.flag),
)

# fmt: on

_ADDING = frozenset({"tags", "meta"})
"""Options whose later values are added to the earlier ones instead of replacing them."""

# ---- lookups ---------------------------------------------------------------------------------------

_BY_SCOPE: dict[str, dict[str, Option]] = {scope: {} for scope in get_args(Scope)}
_DEFAULTS: dict[str, dict[str, Any]] = {scope: {} for scope in get_args(Scope)}
RECORD_OPTIONS: set[str] = set()
"""The job options that travel in the record of a job."""


def add_option(option: Option) -> None:
    """Add an option to the table of this process, before the first task is declared and the command line is imported.

    The package adds its own options here. A test may add one more to see that everything follows from the table.
    """
    for scope in option.scopes:
        _BY_SCOPE[scope][option.name] = option
        _DEFAULTS[scope][option.name] = option.default
    if "job" in option.scopes and option.carried == "record":
        RECORD_OPTIONS.add(option.name)


for _each in OPTIONS:
    add_option(_each)


@contextmanager
def added_option(option: Option) -> Iterator[None]:
    """The table with one more option, inside a ``with`` block of a test."""
    add_option(option)
    try:
        yield
    finally:
        RECORD_OPTIONS.discard(option.name)
        for scope in option.scopes:
            del _BY_SCOPE[scope][option.name], _DEFAULTS[scope][option.name]


# ---- use -------------------------------------------------------------------------------------------


def resolve_options(
    scope: Scope, given: Mapping[str, object], *, base: Mapping[str, object] | None = None, subject: str = ""
) -> dict[str, Any]:
    """The options in normal form: ``given`` replaces ``base``, and ``base`` replaces the defaults of the scope.

    Durations become whole microseconds, ``run_at`` becomes microseconds since 1970, a priority its number, exception
    classes a tuple, ``backoff`` a ``Backoff``. ``subject`` is named in errors, such as ``task 'send'``.
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
    """Only the options given for one job, in normal form; ``given`` replaces ``before``. Checked with the task's."""
    resolved = resolve_options("job", given, base={**task, **before}, subject=subject)
    own = {**before, **{name: resolved[name] for name in given}}
    for name in _ADDING & given.keys():
        own[name] = checks.added(name, before.get(name), own[name])
        try:
            checks.added(name, task.get(name), own[name])
        except InvalidOption as error:
            raise error.about(subject) from None
    return own


def inherit_options(
    own: Mapping[str, Any], *, task: Mapping[str, Any], before: Mapping[str, Any], subject: str
) -> dict[str, Any]:
    """The options ``own`` of a job with the options ``before`` that it does not have itself, all in normal form."""
    merged = {**before, **own}
    try:
        for name in _ADDING & merged.keys():
            if name in own:
                merged[name] = checks.added(name, before.get(name), own[name])
            checks.added(name, task.get(name), merged[name])
        _cross_check({**task, **merged}, {name: show_value(name, value) for name, value in merged.items()})
    except InvalidOption as error:
        raise (error if error.subject else error.about(subject)) from None
    return merged


def options_for(scope: Scope) -> tuple[Option, ...]:
    """The options of a scope, in the order of the table."""
    return tuple(_BY_SCOPE[scope].values())


def beat_us(lease_us: int) -> int:
    """The time between two heartbeats of a worker: a third of its lease."""
    return lease_us // 3


def show_value(name: str, value: Any) -> Any:
    """A job option in normal form as people read it: a duration becomes text."""
    option = _BY_SCOPE["job"].get(name)
    timed = option is not None and option.type.startswith("Duration") and isinstance(value, int)
    return format_duration(value / SECOND) if timed else value


def _refusal(scope: str, name: str, subject: str) -> UnknownOption | NotBuilt:
    if scope == "task" and (later := later_hint(name, "option")):
        return NotBuilt(subject, name, hint=later)
    places = ("worker option", "option") if scope == "worker" else ("option", "worker option")
    if foreign := foreign_hint(name, *places):
        return UnknownOption(subject, name, hint=foreign)
    elsewhere = [other for other, options in _BY_SCOPE.items() if name in options]
    where = {
        "job": "task.options(...)", "task": "@app.task(...)", "worker": "the worker: app.run(...)",
        "bulk": "@app.bulk_task(...)", "queue": "app.queue(...)", "breaker": "app.breaker(...)",
        "schedule": "@app.schedule(...)", "pool": "app.pool(...)",
    }  # fmt: skip
    hint = f"{name!r} is an option of {' and '.join(where[other] for other in elsewhere)}." if elsewhere else ""
    return UnknownOption(subject, name, _BY_SCOPE[scope], hint=hint)


def expires_too_soon(expires: int, start: str) -> InvalidOption:
    """The error of a job that expires before it may start; ``start`` says which option delays it."""
    return InvalidOption(
        "expires", format_duration(expires / SECOND), f"the job would expire before it may start ({start})",
        hint="expires counts from the enqueue, not from the start: give a longer time, or leave it out.",
    )  # fmt: skip


def check_key_expiry(key: Key, expires: int | None) -> None:
    """Refuse a job that would expire while its key makes it wait."""
    if key.mode in ("debounce", "throttle") and expires is not None and expires <= key.window:
        raise expires_too_soon(expires, f"the key has mode={key.mode!r}, window={format_duration(key.window / SECOND)}")


def _cross_check(resolved: Mapping[str, Any], given: Mapping[str, object]) -> None:
    if resolved.get("delay") is not None and resolved.get("run_at") is not None:
        raise InvalidOption(
            "delay",
            given.get("delay") or format_duration(resolved["delay"] / SECOND),
            "cannot be given together with run_at",
            hint="delay counts from now. Give only one of the two.",
        )
    delay, expires = resolved.get("delay"), resolved.get("expires")
    if delay and expires is not None and expires <= delay:
        raise expires_too_soon(expires, f"delay={format_duration(delay / SECOND)}")
    if (key := resolved.get("key")) is not None:
        check_key_expiry(key, expires)
    if resolved.get("burst") and resolved.get("until_empty"):
        hint = "burst does not wait for scheduled and retrying jobs, until_empty does. Give only one of the two."
        raise InvalidOption("burst", True, "cannot be given together with until_empty", hint=hint)
    soft, hard = resolved.get("soft_timeout"), resolved.get("timeout")
    if soft is not None and hard is not None and soft >= hard:
        name = "soft_timeout" if "soft_timeout" in given else "timeout"
        raise InvalidOption(
            name,
            given.get(name),
            "soft_timeout must be shorter than timeout",
            hint="The handler needs the time between the two to clean up.",
        )
    if resolved.get("ack") == "early" and given.get("retries"):
        raise InvalidOption(
            "retries",
            given["retries"],
            'cannot be given with ack="early", which retries no failed job',
            hint="Leave retries out, or write retries=0: a begun job runs again only if the task raises Retry. "
            'For retries use ack="late", the default.',
        )
    if resolved.get("ack") == "early" and "crashes" in given:
        raise InvalidOption(
            "crashes",
            given["crashes"],
            'cannot be given with ack="early", which makes a job dead after its first crash',
            hint='Leave crashes out. To run a job again after a crash use ack="late", the default.',
        )
    _refuse_ignored_retry_rules(resolved, given)
    for wanted in resolved.get("retry_on", ()):
        for never in resolved.get("never_retry_on", ()):
            if issubclass(wanted, never):
                raise InvalidOption(
                    "never_retry_on",
                    never,
                    f"includes all exceptions of retry_on {wanted.__name__}",
                    hint="never_retry_on takes subclasses of retry_on. To retry nothing, use retries=0.",
                )


def _refuse_ignored_retry_rules(resolved: Mapping[str, Any], given: Mapping[str, object]) -> None:
    """Refuse rules about retries of a task that retries no exception. A breaker counts by these rules too, and
    ``never_retry_on=BreakerOpen`` ends a job that a breaker refuses."""
    early = resolved.get("ack") == "early"
    if resolved.get("breaker") or not (early or given.get("retries") == 0):
        return
    cause = 'ack="early"' if early else "retries=0"
    for name in ("retry_on", "never_retry_on", "retry_if"):
        ends_refused = name == "never_retry_on" and issubclass(BreakerOpen, resolved.get(name, ()))
        if given.get(name) and not ends_refused:
            hint = "Leave it out, or leave retries=0 out: task.options(retries=0) is for one job."
            if early:
                hint = 'Leave it out. For retries use ack="late", the default.'
            why = f"cannot be given with {cause}, which retries no exception"
            raise InvalidOption(name, given[name], why, hint=hint)
