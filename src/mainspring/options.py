"""Every option, declared once: name, type, default, meaning, check, and where it may be given.

From this table come the checks of ``@app.task``, ``task.options`` and the worker, the flags of the
command line and the reference page. The typed dictionaries below it serve type checkers; a test
holds them equal to the table. Nothing is ignored: an unknown option is an error with "did you mean",
one that belongs elsewhere says where, one of a later release says that it is not built.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypedDict

import msgspec

from mainspring.backoff import DEFAULT, Backoff, BackoffFunction, coerce
from mainspring.clock import from_datetime
from mainspring.duration import Duration, to_us
from mainspring.errors import InvalidOption, NotBuilt, UnknownOption

Scope = Literal["job", "task", "worker"]
Priority = int | Literal["low", "normal", "high", "critical"]
ErrorClasses = type[Exception] | Sequence[type[Exception]]

PRIORITIES = {"low": -50, "normal": 0, "high": 50, "critical": 100}


class Option(msgspec.Struct, frozen=True):
    """One option. ``convert(value, name)`` gives the normal form or raises ``InvalidOption``."""

    name: str
    type: str
    default: Any
    doc: str
    scopes: frozenset[str]
    convert: Callable[[Any, str], Any]
    shown_default: str = ""


# ---- checks ----------------------------------------------------------------------------------------


def _queue(value: Any, name: str) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}", value, re.ASCII):
        return value
    raise InvalidOption(
        name, value, "is not a queue name", hint="1 to 64 letters, digits and _ . : - ; the first a letter or digit."
    )


def _queues(value: Any, name: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    if not isinstance(value, (list, tuple, set, frozenset)) or not value:
        raise InvalidOption(name, value, "must name at least one queue", hint='queues=["email", "default"]')
    return tuple(dict.fromkeys(_queue(item, name) for item in value))


def _priority(value: Any, name: str) -> int:
    if isinstance(value, str) and value in PRIORITIES:
        return PRIORITIES[value]
    if type(value) is int and -100 <= value <= 100:
        return value
    raise InvalidOption(
        name, value, "must be a whole number from -100 to 100 or a name", hint=f"Names: {', '.join(PRIORITIES)}."
    )


def _whole(low: int, high: int = 1_000_000) -> Callable[[Any, str], int]:
    def convert(value: Any, name: str) -> int:
        if type(value) is not int or not low <= value <= high:
            raise InvalidOption(name, value, f"must be a whole number from {low} to {high:,}")
        return value

    return convert


def _processes(value: Any, name: str) -> int:
    if isinstance(value, str):
        if re.fullmatch(r"\s*\d+\s*\.\.\s*\d+\s*", value, re.ASCII):
            raise NotBuilt("worker", name, hint="A range that scales is of a later release: give one number.")
        value = int(value) if re.fullmatch(r"\d{1,6}", value, re.ASCII) else value
    return _whole(1, 1_000)(value, name)


def _span(value: Any, name: str) -> int:
    us = to_us(value, what=name)
    if us <= 0:
        raise InvalidOption(name, value, "must be longer than nothing")
    return us


def _span_or_none(value: Any, name: str) -> int | None:
    return None if value is None else _span(value, name)


def _wait(value: Any, name: str) -> int:
    return to_us(value, what=name)


def _wait_or_none(value: Any, name: str) -> int | None:
    return None if value is None else _wait(value, name)


def _moment(value: Any, name: str) -> int | None:
    return None if value is None else from_datetime(value, what=name)


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidOption(name, value, "must be True or False")
    return value


def _choice(*allowed: str | None) -> Callable[[Any, str], Any]:
    def convert(value: Any, name: str) -> Any:
        if not isinstance(value, str | None) or value not in allowed:
            raise InvalidOption(name, value, f"must be {' or '.join(repr(each) for each in allowed if each)}")
        return value

    return convert


def _executor(value: Any, name: str) -> Any:
    if value == "process":
        raise NotBuilt("task", 'executor="process"', hint='Use executor="thread" until process slots are there.')
    return _choice("async", "thread", None)(value, name)


def _name(value: Any, name: str) -> str | None:
    if value is None or (isinstance(value, str) and re.fullmatch(r"[^\s\x00-\x1f\x7f]{1,200}", value)):
        return value
    raise InvalidOption(name, value, "is not a task name", hint="1 to 200 characters without spaces.")


def _names(value: Any, name: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or None in value:
        raise InvalidOption(name, value, "must be a list of names", hint='aliases=["shop.old_name"]')
    return tuple(str(_name(item, name)) for item in value)


def _errors(value: Any, name: str) -> tuple[type[Exception], ...]:
    classes = (value,) if isinstance(value, type) else value
    if isinstance(classes, Sequence) and all(isinstance(c, type) and issubclass(c, Exception) for c in classes):
        return tuple(classes)
    raise InvalidOption(name, value, "must be exception classes", hint=f"{name}=(ConnectionError, TimeoutError)")


def _predicate(value: Any, name: str) -> Any:
    if value is not None and not callable(value):
        raise InvalidOption(name, value, "must be a function(error) that returns True or False")
    return value


def _backoff(value: Any, name: str) -> Backoff:
    return coerce(value, what=name)


def _concurrency(value: Any, name: str) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise InvalidOption(name, value, "must map queues to numbers", hint='concurrency={"email": 5}')
    return {_queue(queue, name): _whole(1)(size, f"{name}[{queue!r}]") for queue, size in value.items()}


def _anything(value: Any, name: str) -> Any:  # noqa: ARG001 - the store that writes through it checks it
    return value


# ---- the table -------------------------------------------------------------------------------------

_JOB_TASK, _JOB, _TASK, _WORKER = (frozenset(scopes) for scopes in (("job", "task"), ("job",), ("task",), ("worker",)))
_CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
HOUR = 3_600_000_000
SECOND = 1_000_000

# fmt: off
OPTIONS: tuple[Option, ...] = (
    Option("queue", "str", "default", "The queue that the job waits in.", _JOB_TASK, _queue),
    Option("priority", "Priority", 0, "-100 to 100, higher sooner; or low, normal, high, critical.",
           _JOB_TASK, _priority),
    Option("expires", "Duration | None", None, "Not started within this time: cancelled, never run.",
           _JOB_TASK, _span_or_none),
    Option("retries", "int", 5, "How often a failed job is tried again.", _JOB_TASK, _whole(0)),
    Option("timeout", "Duration | None", HOUR, "An attempt is ended after this time; None switches it off.",
           _JOB_TASK, _span_or_none, "1h"),
    Option("delay", "Duration | None", None, "Run no earlier than this long from now.", _JOB, _wait_or_none),
    Option("run_at", "datetime | None", None, "Run no earlier than this moment (with a time zone).", _JOB, _moment),
    Option("connection", "Any", None, "Enqueue inside this connection's transaction.", _JOB, _anything),
    Option("name", "str | None", None, "The task's name; its module and qualified name if not given.", _TASK, _name),
    Option("aliases", "Sequence[str]", (), "Older names under which waiting jobs still find the task.", _TASK, _names),
    Option("executor", "Literal['async', 'thread'] | None", None,
           "Where it runs; async def on the loop and def in a thread if not given.", _TASK, _executor),
    Option("soft_timeout", "Duration | None", None, "SoftTimeout is raised in the handler after this time.",
           _TASK, _span_or_none),
    Option("backoff", "Backoff | Duration | BackoffFunction", DEFAULT, "The wait before each retry.", _TASK, _backoff,
           "5s x 4, cap 10m, full jitter"),
    Option("retry_on", "ErrorClasses", (Exception,), "Errors that may be retried.", _TASK, _errors, "Exception"),
    Option("never_retry_on", "ErrorClasses", (), "Errors that make the job dead at once.", _TASK, _errors, "none"),
    Option("retry_if", "Callable[[BaseException], bool] | None", None, "Asked last whether an error may be retried.",
           _TASK, _predicate),
    Option("crashes", "int", 3, "How many crashes of its process a job may cause before it is dead.", _TASK, _whole(1)),
    Option("ack", "Literal['late', 'early']", "late", "early: at most once, acknowledged before it runs.",
           _TASK, _choice("late", "early")),
    Option("fence", "Literal['auto', 'strict']", "auto", "strict: ended before anyone else could run the job.",
           _TASK, _choice("auto", "strict")),
    Option("result", "Literal['store', 'ignore']", "store", "Whether the result is kept.",
           _TASK, _choice("store", "ignore")),
    Option("queues", "Sequence[str] | str | None", None, "Queues to serve; all that its tasks use if not given.",
           _WORKER, _queues, "all"),
    Option("processes", "int", 1, "Worker processes.", _WORKER, _processes),
    Option("async_slots", "int", 64, "Async jobs at once in each process.", _WORKER, _whole(0)),
    Option("thread_slots", "int", min(32, 4 * _CORES), "Jobs in threads at once in each process.", _WORKER, _whole(0),
           "min(32, 4 x cores)"),
    Option("concurrency", "Mapping[str, int]", {}, "Most jobs of a queue at once in each process.",
           _WORKER, _concurrency, "none"),
    Option("lease", "Duration", 15 * SECOND, "A worker silent so long has lost its jobs; it beats each third of it.",
           _WORKER, _span, "15s"),
    Option("drain", "Duration", 25 * SECOND, "How long running jobs may take to finish when the worker stops.",
           _WORKER, _wait, "25s"),
    Option("until_empty", "bool", False, "Stop when no job is left.", _WORKER, _flag),
    Option("poll", "Duration", SECOND, "Look for work at least so often.", _WORKER, _span, "1s"),
    Option("sweep", "Duration", 3 * SECOND, "Look for lost workers so often.", _WORKER, _span, "3s"),
    Option("grace", "Duration", 5 * SECOND, "From asking a process to end until it is killed.", _WORKER, _span, "5s"),
)

NOT_BUILT: dict[str, frozenset[str]] = {
    **dict.fromkeys(("key", "tags", "meta"), _JOB_TASK),
    **dict.fromkeys(("pool", "limit", "breaker", "needs", "memory_limit", "cpu_limit", "retention", "on_success",
                     "on_dead", "on_cancel", "sensitive", "pin_version"), _TASK),
    **dict.fromkeys(("labels", "roles"), _WORKER),
}
# fmt: on


class JobOptions(TypedDict, total=False):
    """Options of one job: ``task.options(...)``."""

    queue: str
    priority: Priority
    expires: Duration | None
    retries: int
    timeout: Duration | None
    delay: Duration | None
    run_at: datetime | None
    connection: Any


class TaskOptions(TypedDict, total=False):
    """Options of a task: ``@app.task(...)``."""

    queue: str
    priority: Priority
    expires: Duration | None
    retries: int
    timeout: Duration | None
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


# ---- use -------------------------------------------------------------------------------------------

_BY_SCOPE = {scope: {o.name: o for o in OPTIONS if scope in o.scopes} for scope in ("job", "task", "worker")}
_DEFAULTS = {scope: {o.name: o.default for o in found.values()} for scope, found in _BY_SCOPE.items()}


def resolve(
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


def overlay(
    given: Mapping[str, object], *, task: Mapping[str, object], before: Mapping[str, object], subject: str
) -> dict[str, Any]:
    """Only what was given for one job, in normal form, over what was given ``before``; checked against the task's."""
    resolved = resolve("job", given, base={**task, **before}, subject=subject)
    return {**before, **{name: resolved[name] for name in given}}


def table(scope: Scope) -> tuple[Option, ...]:
    """The options of a scope, for documentation and flags."""
    return tuple(_BY_SCOPE[scope].values())


def beat_us(lease_us: int) -> int:
    """How often a worker beats: three times in a lease."""
    return lease_us // 3


def _refusal(scope: str, name: str, subject: str) -> UnknownOption | NotBuilt:
    if scope in NOT_BUILT.get(name, ()):
        return NotBuilt(subject, name)
    elsewhere = [other for other, options in _BY_SCOPE.items() if name in options]
    where = {"job": "task.options(...)", "task": "@app.task(...)", "worker": "the worker: app.run(...)"}
    hint = f"{name!r} is an option of {' and '.join(where[other] for other in elsewhere)}." if elsewhere else ""
    return UnknownOption(subject, name, _BY_SCOPE[scope], hint=hint)


def _cross_check(resolved: Mapping[str, Any], given: Mapping[str, object]) -> None:
    if resolved.get("delay") is not None and resolved.get("run_at") is not None:
        raise InvalidOption(
            "delay",
            given.get("delay"),
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
