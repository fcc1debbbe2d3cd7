"""The error tree of Mainspring.

::

    MainspringError
    ├── ConfigError (ValueError)        a declaration, option or setting is wrong
    │   ├── UnknownOption                   no such option; did you mean ...?
    │   ├── InvalidOption                   the option's value is wrong
    │   ├── NotBuilt                        the name is reserved for a later release
    │   │   ├── NotBuiltAttribute (AttributeError)
    │   │   └── NotBuiltImport (ImportError)
    │   ├── BadUrl                          the store's URL is not valid
    │   ├── MissingDriver                   the package that talks to this store is not installed
    │   └── BadSignature                    an annotation of a task cannot be resolved or stored
    ├── EnqueueError                    the job was not created
    │   ├── ArgumentError (TypeError)
    │   │   ├── MissingArgument
    │   │   ├── UnknownArgument
    │   │   ├── WrongArgument
    │   │   ├── ArgumentNotSerializable
    │   │   ├── PayloadTooLarge
    │   │   └── PayloadTooDeep
    │   ├── UnknownTask                     also a NotFound
    │   ├── TaskNotImportable
    │   ├── WrongConnection
    │   ├── InCallerTransaction
    │   ├── KeyTaken                        another job holds the unique key; has .holder
    │   ├── KeyConflict                     the key was used with other arguments; has .holder and .job
    │   ├── QueueDraining                   the queue refuses new jobs while it drains
    │   ├── QueueDisabled                   the queue is disabled and rejects jobs
    │   ├── QueueFull                       the queue has its maximum number of jobs; has .retry_after
    │   ├── FlowClosed                      the flow or batch takes no further jobs; has .flow
    │   └── NotTriggered                    the rules of the schedule refuse a run now; has .why and .job
    ├── JobError                        about one job; has .job
    │   ├── JobDead
    │   ├── JobCancelled
    │   ├── ResultTimeout (TimeoutError)
    │   ├── ResultGone
    │   ├── ResultTooLarge
    │   ├── JobNotFound                     also a NotFound
    │   ├── StreamFull
    │   └── WrongState
    ├── AttemptError                    recorded as the error of an attempt
    │   ├── SoftTimeout (TimeoutError)
    │   ├── HardTimeout (TimeoutError)
    │   ├── WorkerCrashed
    │   ├── ChildDied                       the child process of a pool died; has .how
    │   ├── WorkerLost
    │   ├── Undecodable
    │   ├── ResultNotSerializable
    │   ├── WrongOutcomes
    │   └── Fenced
    ├── StoreError                      about the store; has .url, without the password
    │   ├── StoreUnavailable (ConnectionError)
    │   ├── StoreMisconfigured
    │   ├── StoreConflict
    │   ├── StoreFull
    │   ├── SchemaOutdated
    │   ├── StoreCorrupt
    │   ├── UnsupportedFileSystem
    │   ├── InMemoryStore
    │   ├── StoreReadOnly
    │   └── StoreNotDurable                 strict mode: the server keeps less than asked for
    ├── NotFound (LookupError)          nothing has this name: a schedule, queue, limit, breaker; has .kind and .name
    │   ├── JobNotFound                     also a JobError
    │   └── UnknownTask                     also an EnqueueError
    ├── BreakerOpen                     the guarded code did not run; has .retry_after
    ├── DrainTimeout (TimeoutError)     the queue is not empty yet; has .queue and .left
    ├── LimitTimeout (TimeoutError)     a limiter had no capacity in time; has .bucket and .waited
    ├── LockBusy                        another holder has the lock; has .lock and .holder
    ├── LockLost                        the lock was lost while it was held; has .lock and .token
    └── UseError                        the call is not possible in this place
        ├── WouldBlockLoop (RuntimeError)
        ├── WouldDeadlock (RuntimeError)
        ├── OptionsOnCall (TypeError)       job options and then a plain call, which would ignore them
        ├── NoMainGuard
        ├── LoopEnded (RuntimeError)        user code ended the loop of an embedded worker
        ├── NotOpen
        ├── NoApp                           a task of a Tasks() that no app, or more than one, includes
        ├── ForkedWorker
        ├── MiddlewareError                 run or arun did not return what body() returned
        ├── UnknownAttribute (AttributeError)   says what another library's name is called here
        ├── UnknownImport (ImportError)         the same for ``from mainspring import ...``
        ├── InsideTest                      not possible while the app is in test mode
        └── OutsideTest                     a test without app.test() opened a real store

    Signal                              raised *by* a task to control its job; not an error
    ├── Retry
    ├── Snooze
    ├── RateLimited
    ├── Cancel
    └── Discard

An error says what happened, to what, and what to do. ``hint`` says what to do and is shown as a second,
indented line. All errors can be pickled and copied.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta
    from typing import Any
    from uuid import UUID

    from mainspring.common.duration import Duration
    from mainspring.jobs.why import Why


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the nearest candidate, or an empty string."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def mask_url(url: str) -> str:
    """The URL without its password, for messages and logs.

    >>> mask_url("postgresql://shop:secret@db/shop")
    'postgresql://shop:***@db/shop'

    If the password has an unescaped ``@``, ``/`` or ``?``, the function hides too much rather than too little.
    """
    import re

    start, rest = _split_url(url)
    if "@" in rest and not rest.startswith("/"):
        at = rest.rfind("@")
        user, colon, _ = rest[:at].partition(":")
        if colon:
            url = f"{start}{user}:***{rest[at:]}"
    value = r"[^&]*" if "://" in url else r"'[^']*'|[^&\s]*"
    return re.sub(rf"(?i)\b(password|passwd|pwd|sslpassword)=({value})", r"\1=***", url)


def passwords_in(url: str) -> list[str]:
    """The passwords in a URL as they are written there; each possible reading of a URL with unescaped characters.

    >>> passwords_in("postgresql://shop:p%40ss@db/shop")
    ['p%40ss']
    """
    import re

    _, rest = _split_url(url)
    found = re.findall(r"(?i)[?&](?:password|sslpassword)=([^&#]+)", url)
    if not rest.startswith("/"):
        for end in (len(re.split(r"[/?#]", rest, maxsplit=1)[0]), len(rest)):
            login, at, _ = rest[:end].rpartition("@")
            _, colon, password = login.partition(":")
            if at and colon and password:
                found.append(password)
    return list(dict.fromkeys(found))


def _split_url(url: str) -> tuple[str, str]:
    """The URL up to its authority, and the rest. A URL without ``://`` is split where its authority may start."""
    for separator in ("://", "//"):
        if separator in url:
            start, _, rest = url.partition(separator)
            return start + separator, rest
    return "", url


def shown(value: object, limit: int = 80) -> str:
    """A short ``repr`` for a message; never raises."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - __repr__ is user code
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _rebuild(cls: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    error = cls.__new__(cls)
    error.args = args
    for name, value in state.items():
        setattr(error, name, value)
    return error


class _Carried:
    """Pickle and copy by state, because the constructors have different signatures."""

    def __reduce__(self: Any) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


class MainspringError(_Carried, Exception):
    """Base of every error of Mainspring."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


# ---- configuration ---------------------------------------------------------------------------------


class ConfigError(MainspringError, ValueError):
    """A declaration, option or setting is wrong."""


class UnknownOption(ConfigError):
    """No option has this name; ``subject`` says where it was given."""

    def __init__(self, subject: str, name: str, candidates: Iterable[str] = (), *, hint: str = "") -> None:
        known = sorted(candidates)
        super().__init__(
            f"{subject}: option {name!r} does not exist{did_you_mean(name, known)}",
            hint=hint or (f"Options: {', '.join(known)}." if known else ""),
        )
        self.subject = subject
        self.name = name


class InvalidOption(ConfigError):
    """The value of an option is wrong."""

    def __init__(self, name: str, value: object, why: str, *, subject: str = "", hint: str = "") -> None:
        super().__init__(f"{subject + ': ' if subject else ''}{name}={shown(value)}: {why}", hint=hint)
        self.name = name
        self.value = shown(value)
        self.why = why
        self.subject = subject

    def about(self, subject: str) -> InvalidOption:
        """The same error with the subject that the option belongs to."""
        error = type(self).__new__(type(self))
        MainspringError.__init__(error, f"{subject}: {self.message}", hint=self.hint)
        error.name, error.value, error.why, error.subject = self.name, self.value, self.why, subject
        return error


class NotBuilt(ConfigError):
    """The name is reserved for a later release and does not work yet."""

    def __init__(self, subject: str, name: str, *, hint: str = "") -> None:
        super().__init__(
            f"{subject}: {name!r} is not built yet",
            hint=hint or "The name is reserved for a later release. Leave it out.",
        )
        self.subject = subject
        self.name = name


class NotBuiltAttribute(NotBuilt, AttributeError):  # type: ignore[misc]  # the name is text in both
    """An attribute that a later release will have; ``hasattr`` says False."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, {**self.__dict__, "name": self.name})


class NotBuiltImport(NotBuilt, ImportError):  # type: ignore[misc]  # the name is text in both
    """``from mainspring import name``, and a later release will have the name."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, {**self.__dict__, "name": self.name})


class BadUrl(ConfigError):
    """The store's URL is not valid."""

    def __init__(self, url: str, why: str, *, hint: str = "") -> None:
        super().__init__(
            f"store URL {mask_url(url)!r}: {why}",
            hint=hint or "Use sqlite:///path/file.db, postgresql://user:password@host/db or redis://host:6379/0.",
        )
        self.url = mask_url(url)


class MissingDriver(ConfigError):
    """The Python package that talks to this kind of store is not installed, or cannot be imported."""

    def __init__(self, url: str, driver: str, extra: str, why: str = "") -> None:
        super().__init__(
            f"the store {mask_url(url)} needs the package {driver!r}, which {why or 'is not installed'}",
            hint=f'Run: pip install "mainspring[{extra}]"',
        )
        self.url = mask_url(url)
        self.driver = driver


class BadSignature(ConfigError):
    """A task's signature has an annotation that cannot be resolved or stored."""

    def __init__(self, task: str, argument: str, why: str, *, hint: str = "") -> None:
        place = {"return": "its return type", "": "its function"}.get(argument, f"argument {argument!r}")
        super().__init__(f"task {task!r}: {place} {why}", hint=hint)
        self.task = task
        self.argument = argument


# ---- enqueue ---------------------------------------------------------------------------------------


class EnqueueError(MainspringError):
    """The job was not created."""


class ArgumentError(EnqueueError, TypeError):
    """The arguments do not fit the task; ``task``, ``argument`` and ``path`` name the place."""

    def __init__(self, task: str, argument: str, why: str, *, path: str = "", hint: str = "") -> None:
        call = f"{task}({argument}=...)" if argument else f"{task}(...)"
        super().__init__(f"{call}: {why}", hint=hint)
        self.task = task
        self.argument = argument
        self.path = path or argument


class MissingArgument(ArgumentError):
    """A parameter without a default got no value."""

    def __init__(self, task: str, missing: Sequence[str]) -> None:
        names = ", ".join(repr(name) for name in missing)
        why = f"argument{'s' if len(missing) > 1 else ''} {names} missing"
        super().__init__(task, "", why, hint=f"The task needs {names}: pass a value or give the parameter a default.")
        self.argument = missing[0]
        self.missing = tuple(missing)


class UnknownArgument(ArgumentError):
    """The task has no such parameter."""

    def __init__(self, task: str, name: str, candidates: Sequence[str] = (), *, why: str = "") -> None:
        super().__init__(
            task,
            name,
            why or f"the task has no argument {name!r}{did_you_mean(name, candidates)}",
            hint=f"Arguments: {', '.join(candidates)}." if candidates else "The task takes no arguments.",
        )


class WrongArgument(ArgumentError):
    """An argument does not have its declared type."""


class ArgumentNotSerializable(ArgumentError):
    """An argument cannot be stored as JSON and decoded to an equal value."""


class PayloadTooLarge(ArgumentError):
    """The arguments together exceed the payload limit."""

    def __init__(self, task: str, size: int, limit: int) -> None:
        super().__init__(
            task,
            "",
            f"the arguments take {size:,} bytes, the limit is {limit:,}",
            hint="Store the data elsewhere (a file, a row, an object store) and pass its key.",
        )
        self.size = size
        self.limit = limit


class PayloadTooDeep(ArgumentError):
    """An argument is nested too deeply."""

    def __init__(self, task: str, argument: str, limit: int) -> None:
        super().__init__(
            task,
            argument,
            f"argument {argument!r} is nested deeper than {limit} levels, or contains itself",
            hint="Flatten the value, or pass it as text.",
        )
        self.limit = limit


class NotFound(MainspringError, LookupError):
    """Nothing has this name; ``kind`` is schedule, queue, limit, breaker, job or task, ``name`` the name or the id."""

    def __init__(self, kind: str, name: str, known: Iterable[str] = (), *, hint: str = "") -> None:
        super().__init__(f"{kind} {name!r} is not in the store{did_you_mean(name, known)}", hint=hint)
        self.kind = kind
        self.name = name


class UnknownTask(EnqueueError, NotFound):
    """This process knows no task of this name."""

    def __init__(self, task: str, candidates: Iterable[str] = (), *, hint: str = "") -> None:
        MainspringError.__init__(
            self,
            f"task {task!r} is not known{did_you_mean(task, candidates)}",
            hint=hint or 'Add its module to Mainspring(include=["..."]), or add this name to aliases= of the task.',
        )
        self.task = task
        self.kind, self.name = "task", task


class TaskNotImportable(EnqueueError):
    """A worker cannot import this task's function."""

    def __init__(self, task: str, why: str, *, hint: str = "") -> None:
        super().__init__(
            f"task {task!r}: {why}",
            hint=hint or "Move the function to the top level of an importable module, or run an embedded worker.",
        )
        self.task = task


class WrongConnection(EnqueueError):
    """``connection=`` is not a connection that this store can write through."""


class InCallerTransaction(EnqueueError):
    """Not possible before the transaction that enqueued the job has committed."""


class KeyTaken(EnqueueError):
    """Another job holds the unique key: ``holder`` is its id."""

    def __init__(self, task: str, holder: UUID, *, why: str = "", hint: str = "") -> None:
        super().__init__(
            f"task {task!r}: {why or f'job {holder} holds the unique key'}",
            hint=hint or 'Wait for that job or cancel it. With on_conflict="return" the enqueue returns its handle.',
        )
        self.task = task
        self.holder = holder


class KeyConflict(EnqueueError):
    """Job ``holder`` has the key with other arguments; ``job`` was not enqueued."""

    def __init__(self, task: str, holder: UUID, job: UUID, *, why: str = "") -> None:
        why = why or f"job {holder} used this key with other arguments; job {job} was not enqueued"
        super().__init__(
            f"task {task!r}: {why}",
            hint="One key means one request. Put what differs into the key, or send the same arguments again. "
            "A call by name (app.call) is compared as it was given, without the defaults of the task.",
        )
        self.task = task
        self.holder = holder
        self.job = job


class LimitTimeout(MainspringError, TimeoutError):
    """A limiter had no free capacity in time; ``bucket`` is the bucket that was full."""

    def __init__(self, bucket: str, waited: float) -> None:
        super().__init__(
            f"limit {bucket!r} had no free capacity for {waited:.1f} s",
            hint="Wait longer, or raise the limit: app.limits.set(name, size).",
        )
        self.bucket = bucket
        self.waited = waited


class LockBusy(MainspringError):
    """The lock is held; ``holder`` describes the holder, or is empty if it is unknown."""

    def __init__(self, lock: str, holder: str = "", waited: float = 0.0, *, hint: str = "") -> None:
        after = f" after {waited:.1f} s" if waited else ""
        super().__init__(
            f"{lock} is held{f' by {holder}' if holder else ''}{after}",
            hint=hint or 'Wait for the lock with wait="10s", or skip the work with on_busy="skip".',
        )
        self.lock = lock
        self.holder = holder
        self.waited = waited


class LockLost(MainspringError):
    """The lock was lost. Another holder may have it now, with a fencing token larger than ``token``."""

    def __init__(self, lock: str, token: int, why: str) -> None:
        super().__init__(
            f"{lock} was lost: {why}",
            hint="The guarded work may have run twice. Use a longer ttl, and check the fencing token where you write.",
        )
        self.lock = lock
        self.token = token


class BreakerOpen(MainspringError):
    """A breaker is open, so the guarded code did not run. Try again after ``retry_after``.

    A job that ends with this error is postponed by that time; it uses up no retry.
    """

    def __init__(self, breaker: str, retry_after: timedelta, error: str = "") -> None:
        super().__init__(
            f"breaker {breaker!r} is open{f', last error: {error}' if error else ''}",
            hint=f"Try again in {retry_after.total_seconds():.1f} s, or close the breaker: app.breakers.reset(name).",
        )
        self.breaker = breaker
        self.retry_after = retry_after


class QueueDraining(EnqueueError):
    """The queue is draining and refuses new jobs until it is resumed."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"queue {queue!r} is draining and refuses new jobs",
            hint=f"Resume it with app.queues.resume({queue!r}), or use another queue: task.options(queue=...).",
        )
        self.queue = queue


class QueueDisabled(EnqueueError):
    """The queue is disabled and rejects jobs until it is enabled."""

    def __init__(self, queue: str, by: str = "") -> None:
        who = f" by {by}" if by else ""
        super().__init__(
            f"queue {queue!r} was disabled{who} and rejects jobs",
            hint=f"Enable it with app.queues.enable({queue!r}), or use another queue: task.options(queue=...).",
        )
        self.queue = queue
        self.by = by


class QueueFull(EnqueueError):
    """The queue has its maximum number of waiting jobs; nothing was enqueued.

    ``retry_after`` is an estimate in seconds of when the queue has capacity, from how long its jobs have waited.
    """

    def __init__(
        self, queue: str, max_depth: int, retry_after: float = 1.0, *, waits: bool = False, waited: float = 0.0,
        batch: int = 0,
    ) -> None:  # fmt: skip
        after = f" after {waited:.1f} s" if waited else ""
        why, hint = f"is full{after}", f"Try again in about {retry_after:.1f} s"
        if batch:
            why, hint = f"cannot take {batch:,} jobs at once", "Enqueue fewer jobs at once"
        super().__init__(
            f"queue {queue!r} {why}: its max_depth is {max_depth:,}",
            hint=f"{hint}, or raise the limit: app.queues.configure({queue!r}, max_depth=...).",
        )
        self.queue = queue
        self.max_depth = max_depth
        self.retry_after = retry_after
        self.waits = waits
        """The queue lets producers wait for capacity (``on_full="wait"``)."""


class FlowClosed(EnqueueError):
    """The flow or batch takes no further jobs, because it was closed or has ended; nothing was enqueued.

    ``flow`` is the id of the job that was to wait for the new jobs.
    """

    def __init__(self, flow: UUID) -> None:
        super().__init__(
            f"flow {flow} is closed or has ended: it takes no further jobs",
            hint="Add jobs before close(), or from a job of the flow while it runs (ctx.flow.add).",
        )
        self.flow = flow


class NotTriggered(EnqueueError):
    """The rules of the schedule refuse a run now. ``why`` is the reason, ``job`` the run that blocks it."""

    def __init__(self, schedule: str, why: str, job: UUID | None = None, *, hint: str = "") -> None:
        super().__init__(f"schedule {schedule!r} was not triggered: {why}", hint=hint)
        self.schedule = schedule
        self.why = why
        self.job = job


# ---- jobs ------------------------------------------------------------------------------------------


class JobError(MainspringError):
    """About one job: ``job`` is its id."""

    def __init__(self, message: str, *, job: UUID | str | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.job = job


class JobDead(JobError):
    """The job failed for good; see ``error``, ``type_name`` and ``reason``."""

    def __init__(self, job: UUID | str, error: str = "", *, type_name: str = "", reason: str = "") -> None:
        because = f" ({reason})" if reason else ""
        cause = ": ".join(part for part in (type_name, error) if part)
        super().__init__(
            f"job {job} is dead{because}{': ' + cause if cause else ''}",
            job=job,
            hint="job.info() has every attempt with its traceback.",
        )
        self.error = error
        self.type_name = type_name
        self.reason = reason


class JobCancelled(JobError):
    """The job was cancelled; also raised by ``ctx.check()`` inside a cancelled handler."""

    def __init__(self, job: UUID | str | None = None, reason: str = "") -> None:
        name = f"job {job}" if job is not None else "the job"
        super().__init__(f"{name} was cancelled{': ' + reason if reason else ''}", job=job)
        self.reason = reason


class ResultTimeout(JobError, TimeoutError):
    """The job did not finish before the caller's timeout. The job is not affected."""

    def __init__(
        self, job: UUID | str, waited: float, state: str = "", *, why: Why | None = None, url: str = ""
    ) -> None:
        still = why.text if why is not None else state
        super().__init__(
            f"job {job} did not finish within {waited:g} s"
            f"{f'; it is still {still}' if still else ''}{f' (store: {url})' if url else ''}",
            job=job,
            hint=_timeout_hint(why),
        )
        self.waited = waited
        self.state = state
        self.why = why
        """The answer of ``job.why()`` when the timeout had passed; None if the store did not answer."""
        self.url = url
        """The URL of the store, without its password."""


def _timeout_hint(why: Why | None) -> str:
    slots = [] if why is None else [each.name for each in why.obstacles if each.kind == "slots"]
    if slots:
        return f"The job is not affected. Its workers need {slots[0]} above 0."
    missing = [] if why is None else [each.name for each in why.obstacles if each.kind == "no_worker"]
    if missing:
        return f"The job is not affected. Start a worker for its queue: mainspring worker -Q {missing[0]}"
    return "The job is not affected. Wait longer, or call job.why() to see what it waits for."


class ResultGone(JobError):
    """The job succeeded, but its result is not stored (any more)."""

    def __init__(self, job: UUID | str, why: str = "it was pruned") -> None:
        super().__init__(
            f"job {job} succeeded, but its result is gone: {why}",
            job=job,
            hint='A result is stored as long as its finished job. A task with result="ignore" stores none.',
        )


class ResultTooLarge(JobError):
    """The job succeeded, but its result exceeded the size limit and was dropped."""

    def __init__(self, size: int, limit: int, *, job: UUID | str | None = None) -> None:
        super().__init__(
            f"{f'job {job}: ' if job else ''}the result takes {size:,} bytes, the limit is {limit:,}; it was dropped",
            job=job,
            hint="Store the data elsewhere and return its key.",
        )
        self.size = size
        self.limit = limit

    @classmethod
    def from_message(cls, message: str, job: UUID | str) -> ResultTooLarge | None:
        """The error whose stored message this is; None for another message."""
        import re

        found = re.search(r"the result takes ([\d,]+) bytes, the limit is ([\d,]+);", message)
        if found is None:
            return None
        size, limit = (int(number.replace(",", "")) for number in found.groups())
        return cls(size, limit, job=job)


class JobNotFound(JobError, NotFound):
    """The store has no job with this id."""

    def __init__(self, job: UUID | str) -> None:
        MainspringError.__init__(
            self,
            f"job {job} does not exist",
            hint="It was deleted or pruned, it is in another store or namespace, or its transaction was rolled back.",
        )
        self.job = job
        self.kind, self.name = "job", str(job)


class StreamFull(JobError):
    """The task sent more items than the stream of one job can hold."""

    def __init__(self, job: UUID | str, what: str) -> None:
        super().__init__(
            f"job {job}: its stream can hold {what}", job=job, hint="Send less, or store the data and send its key."
        )


class WrongState(JobError):
    """The action is not possible in the job's state."""

    def __init__(
        self, job: UUID | str, action: str, state: str, allowed: Iterable[str] = (), *, what: str = "job",
        why: str = "", hint: str = "",
    ) -> None:  # fmt: skip
        possible = ", ".join(sorted(allowed))
        super().__init__(
            f"{what} {job} is {state}: {action} is not possible{f', because {why}' if why else ''}",
            job=job,
            hint=hint or (f"{action} works on {what}s that are {possible}." if possible else ""),
        )
        self.action = action
        self.state = state
        self.why = why
        """Why the state of the job does not decide alone, for example because of its flow; empty otherwise."""


# ---- attempts --------------------------------------------------------------------------------------


class AttemptError(MainspringError):
    """The recorded error of an attempt that did not succeed."""


class SoftTimeout(AttemptError, TimeoutError):
    """The attempt ran longer than ``soft_timeout``. Raised inside the task, so that it can clean up."""

    def __init__(self, limit: float) -> None:
        super().__init__(
            f"the attempt ran longer than its soft timeout of {limit:g} s",
            hint="Save the work and return; the hard timeout ends the attempt.",
        )
        self.limit = limit


class HardTimeout(AttemptError, TimeoutError):
    """The attempt ran longer than ``timeout`` and was ended; ``place`` is the line of code at which it was ended."""

    def __init__(self, limit: float, place: str = "") -> None:
        super().__init__(
            f"the attempt ran longer than its timeout of {limit:g} s and was ended{f' at {place}' if place else ''}",
            hint="Raise timeout= on the task, or split the work into smaller jobs.",
        )
        self.limit = limit
        self.place = place


class WorkerCrashed(AttemptError):
    """The worker process died while it ran the attempt."""

    def __init__(self, worker: str, *, signal: int | None = None, exit_code: int | None = None) -> None:
        how = f" by signal {signal}" if signal else f" with exit code {exit_code}" if exit_code is not None else ""
        killed = "Signal 9 without another message usually means: out of memory." if signal == 9 else ""
        super().__init__(f"worker {worker} died{how} while it ran this job", hint=killed)
        self.worker = worker
        self.signal = signal
        self.exit_code = exit_code


class ChildDied(AttemptError):
    """The process of a pool that ran the attempt died. The worker and its other jobs were not touched."""

    def __init__(self, how: str, why: str = "") -> None:
        hint = "SIGKILL without another message usually means: out of memory." if "SIGKILL" in how and not why else ""
        super().__init__(f"the process that ran this job {how}{f': {why}' if why else ''}", hint=hint)
        self.how = how
        self.why = why


class WorkerLost(AttemptError):
    """The worker sent no heartbeat for longer than its lease. The job is not blamed."""

    def __init__(self, worker: str) -> None:
        super().__init__(
            f"worker {worker} sent no heartbeat for longer than its lease",
            hint="Its host stopped or could not reach the store. Another worker runs the job again.",
        )
        self.worker = worker


class Undecodable(AttemptError):
    """The stored arguments or result do not match the code that decodes them."""

    def __init__(self, subject: str, why: str, *, hint: str = "") -> None:
        super().__init__(
            f"{subject}: the stored data cannot be decoded: {why}",
            hint=hint or "If the signature changed meanwhile, give new parameters a default or use @task.upgrade.",
        )
        self.subject = subject
        self.why = why


class ResultNotSerializable(AttemptError):
    """The result cannot be stored as JSON and decoded to an equal value."""


class WrongOutcomes(AttemptError):
    """A bulk task did not return one outcome for each item."""

    def __init__(self, task: str, what: str) -> None:
        super().__init__(
            f"bulk task {task!r} {what}",
            hint="Return a list with one entry for each item, in order: the result or the exception of that item.",
        )
        self.task = task


class Fenced(AttemptError):
    """The attempt was ended because its worker could not renew its lease in time."""


# ---- stores ----------------------------------------------------------------------------------------


class StoreError(MainspringError):
    """About the store: ``url`` is its address without the password."""

    def __init__(self, message: str, *, url: str = "", hint: str = "") -> None:
        masked = mask_url(url) if url else ""
        super().__init__(f"{message} ({masked})" if masked else message, hint=hint)
        self.url = masked


class StoreUnavailable(StoreError, ConnectionError):
    """The store cannot be reached or did not answer in time. Try again."""


class StoreMisconfigured(StoreError):
    """The store cannot be used as it is configured: wrong password, unknown database, missing directory.

    Another try does not help.
    """


class StoreConflict(StoreError):
    """Another process changed the same data first, or the store refused the data."""


class StoreFull(StoreError):
    """The store is full: disk, memory or a configured limit."""


class SchemaOutdated(StoreError):
    """The store's schema is older or newer than this version of Mainspring can use."""


class StoreCorrupt(StoreError):
    """The store's data is damaged."""


class UnsupportedFileSystem(StoreError):
    """SQLite needs a local file system with working locks."""


class InMemoryStore(StoreError):
    """A store in memory belongs to one process, and the call needs it in a second process."""

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="Use a file: sqlite:///jobs.db. A store in memory runs jobs with app.worker().")


class StoreReadOnly(StoreError):
    """The store refuses writes: a replica, a read-only file, or a failover in progress."""


class StoreNotDurable(StoreError):
    """The server is less durable than ``durability`` asks for. Raised at open when ``strict`` is on."""


# ---- queues ----------------------------------------------------------------------------------------


class DrainTimeout(MainspringError, TimeoutError):
    """The queue was not empty before the caller's timeout. It continues to drain."""

    def __init__(self, queue: str, waited: float, left: int) -> None:
        super().__init__(
            f"queue {queue!r} is not empty after {waited:g} s: {left:,} live job{'' if left == 1 else 's'} left",
            hint="It refuses new jobs until app.queues.resume(). Check that a worker serves it: app.workers.list().",
        )
        self.queue = queue
        self.waited = waited
        self.left = left


# ---- use -------------------------------------------------------------------------------------------


class UseError(MainspringError):
    """The call is not possible in this place."""


class WouldBlockLoop(UseError, RuntimeError):
    """A blocking call inside a running event loop; names the async version to await."""

    def __init__(self, verb: str, twin: str = "") -> None:
        head, _, last = verb.rpartition(".")
        if verb.startswith("with "):
            twin, call, hint = f"async {verb}", verb, f"Use: async {verb}"
        else:
            twin = twin or (f"{head}.a{last}" if head else f"a{last}")
            call, hint = f"{verb}()", f"Use: await {twin}(...)"
        super().__init__(f"{call} would block the running event loop", hint=hint)
        self.verb = verb
        self.twin = twin


class WouldDeadlock(UseError, RuntimeError):
    """The call would wait for itself for ever: a job waits for a job that needs its limit, or a signal handler or
    finaliser called the store while its own thread was inside a store call."""

    def __init__(self, message: str = "", *, hint: str = "") -> None:
        super().__init__(
            message or "this thread is already inside a store call and would wait for itself forever",
            hint=hint
            or "A signal handler or __del__ interrupted the call. Set a flag there, and enqueue from ordinary code.",
        )


class OptionsOnCall(UseError, TypeError):
    """A task with job options was called as a function: the call would run here, now, and ignore the options."""

    def __init__(self, task: str, options: Iterable[str], verb: str) -> None:
        names = ", ".join(options)
        super().__init__(
            f"task {task!r}: a plain call runs the function here, at once, and ignores the job options ({names})",
            hint=f"To make a job: .options(...).{verb}(...). To call the function, leave .options(...) out.",
        )
        self.task = task


class NoMainGuard(UseError):
    """``app.run()`` at the top level of a script that child processes import again."""

    def __init__(self, verb: str = "app.run()") -> None:
        super().__init__(
            f"{verb} ran while a child process imported this script",
            hint=f'Write:  if __name__ == "__main__":\n              {verb}',
        )


class LoopEnded(UseError, RuntimeError):
    """User code ended the event loop of an embedded worker, and so the worker."""

    def __init__(self, how: str) -> None:
        super().__init__(
            f"user code ended the event loop of the embedded worker: {how}",
            hint="The jobs that ran on the loop count as crashed. A job ends itself with return or an exception.",
        )
        self.how = how


class NotOpen(UseError):
    """The object was closed, or was never opened."""


class NoApp(UseError):
    """A task of a ``Tasks()`` has no app, or more than one."""

    def __init__(self, task: str, apps: int = 0) -> None:
        if apps:
            said = f"task {task!r} is included in {apps} apps, and the call does not say which"
            hint = f"Name the app: app.call({task!r}, ...) or app.tasks.find({task!r})."
        else:
            said = f"task {task!r} belongs to no app yet"
            hint = "Include the Tasks() that declares it: app.include(tasks)."
        super().__init__(said, hint=hint)
        self.task = task


class ForkedWorker(UseError):
    """A worker object is used in a forked child of the process that made it."""


class MiddlewareError(UseError):
    """``run`` or ``arun`` of a middleware returned None, and the result of the task was lost, or never made."""

    def __init__(self, middleware: str, method: str, *, ran: bool) -> None:
        body = "await body()" if method == "arun" else "body()"
        why = f"{body} returned a result" if ran else f"did not call {body}: the work is not done"
        super().__init__(
            f"{middleware}.{method} returned None, {'and' if ran else 'and it'} {why}",
            hint=f"Write return {body}. To skip the body, return a value, or raise Cancel, Discard or Snooze.",
        )


class UnknownAttribute(UseError, AttributeError):
    """The object has no such attribute; the hint says what another library's name is called here."""

    def __init__(self, subject: str, name: str, *, hint: str = "", near: str = "") -> None:
        super().__init__(f"{subject} has no attribute {name!r}{near}", hint=hint)
        self.name = name  # with a name of its own, the traceback of Python adds no second guess

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, {**self.__dict__, "name": self.name})


class UnknownImport(UseError, ImportError):
    """The package has no such name; the hint says what another library's name is called here."""

    def __init__(self, package: str, name: str, *, hint: str = "", near: str = "") -> None:
        super().__init__(f"cannot import name {name!r} from {package!r}{near}", hint=hint)
        self.name = name

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, {**self.__dict__, "name": self.name})


class InsideTest(UseError):
    """The call is not possible while the app is in test mode."""


class OutsideTest(UseError):
    """A test without ``app.test()`` opened a store that is not a test store."""


# ---- signals ---------------------------------------------------------------------------------------


class Signal(_Carried, Exception):
    """Raised by a task to control its own job. Not an error."""


class Retry(Signal):
    """Fail this attempt and retry after the backoff, or ``after`` a duration.

    It uses up one retry.
    """

    def __init__(self, after: Duration | None = None) -> None:
        super().__init__(after)
        self.after = after


class Snooze(Signal):
    """Run again later, ``for_`` a duration or ``until`` a time. The attempt does not count.

    Without a pause (0, or a time that has passed) the job runs again after one second.
    """

    def __init__(self, for_: Duration | None = None, until: datetime | None = None) -> None:
        if (for_ is None) == (until is None):
            given = "both" if for_ is not None else "neither"
            raise InvalidOption("Snooze", given, "takes exactly one of for_= and until=", hint='Snooze(for_="5m")')
        super().__init__(for_ if for_ is not None else until)
        self.for_ = for_
        self.until = until


class RateLimited(Signal):
    """Another system's rate limit refused the call: run again after ``retry_after``. The attempt does not count.

    For that time the rate limits of the job start nothing, in the whole fleet.
    """

    def __init__(self, retry_after: Duration) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after


class Cancel(Signal):
    """End this job as cancelled."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Discard(Signal):
    """End this job as dead at once, also if retries are left."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
