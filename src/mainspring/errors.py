"""Every error that Mainspring raises or records.

::

    MainspringError
    ├── ConfigError (ValueError)        what you declared cannot be used
    │   ├── UnknownOption                   no such option; did you mean ...?
    │   ├── InvalidOption                   the option's value is wrong
    │   ├── NotBuilt                        a known name of a later release
    │   ├── BadUrl                          the store's URL cannot be read
    │   └── BadSignature                    an annotation of a task cannot be resolved or stored
    ├── EnqueueError                    the job was not created
    │   ├── ArgumentError (TypeError)
    │   │   ├── MissingArgument
    │   │   ├── UnknownArgument
    │   │   ├── WrongArgument
    │   │   ├── ArgumentNotSerializable
    │   │   ├── PayloadTooLarge
    │   │   └── PayloadTooDeep
    │   ├── UnknownTask (LookupError)
    │   ├── TaskNotImportable
    │   ├── WrongConnection
    │   ├── InCallerTransaction
    │   ├── KeyTaken                        another job holds the unique key; has .holder
    │   ├── KeyConflict                     the key was used with other arguments; has .holder and .job
    │   ├── QueueDraining                   the queue takes no more jobs
    │   ├── QueueDisabled                   the queue is switched off and rejects jobs
    │   ├── QueueFull                       as many jobs wait in the queue as may; has .retry_after
    │   └── NotTriggered                    the rules of a schedule do not let it run now; has .why and .job
    ├── JobError                        about one job; has .job
    │   ├── JobDead
    │   ├── JobCancelled
    │   ├── ResultTimeout (TimeoutError)
    │   ├── ResultGone
    │   ├── ResultTooLarge
    │   ├── JobNotFound (LookupError)
    │   ├── StreamFull
    │   └── WrongState
    ├── AttemptError                    recorded as the cause of an attempt
    │   ├── SoftTimeout (TimeoutError)
    │   ├── HardTimeout (TimeoutError)
    │   ├── WorkerCrashed
    │   ├── WorkerLost
    │   ├── Undecodable
    │   ├── ResultNotSerializable
    │   ├── WrongOutcomes
    │   └── Fenced
    ├── StoreError                      about the store; has .url, without the password
    │   ├── StoreUnavailable (ConnectionError)
    │   ├── StoreConflict
    │   ├── StoreFull
    │   ├── SchemaOutdated
    │   ├── StoreCorrupt
    │   ├── UnsupportedFileSystem
    │   ├── StoreReadOnly
    │   └── StoreNotDurable                 strict mode: it cannot keep what was asked for
    ├── BreakerOpen                     what it guards was not run; has .retry_after
    ├── DrainTimeout (TimeoutError)     the queue is not empty yet; has .queue and .left
    ├── LimitTimeout (TimeoutError)     a limiter had no room in time; has .bucket and .waited
    ├── LockBusy                        somebody else holds the lock; has .lock and .holder
    ├── LockLost                        the lock was lost while it was held; has .lock and .token
    └── UseError                        the call is right, the place is not
        ├── WouldBlockLoop (RuntimeError)
        ├── WouldDeadlock (RuntimeError)
        ├── NoMainGuard
        ├── NotOpen
        ├── NoApp                           a task of a Tasks() that no app includes, or more than one
        ├── ForkedWorker
        ├── InsideTest                      not while the app is in test mode
        └── OutsideTest                     a test without app.test() reached for a real store

    Signal                              raised *by* a handler to steer its job; not an error
    ├── Retry
    ├── Snooze
    ├── RateLimited
    ├── Cancel
    └── Discard

An error says what happened, to what, and what to do: the last is ``hint``, shown as
a second, indented line. All of them can be pickled and copied.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime, timedelta
    from typing import Any
    from uuid import UUID

    from mainspring.common.duration import Duration


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the nearest candidate, or an empty string."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def mask_url(url: str) -> str:
    """The URL without its password, for messages and logs.

    >>> mask_url("postgresql://shop:secret@db/shop")
    'postgresql://shop:***@db/shop'

    When in doubt (an unescaped ``@`` or ``/`` in the password) it hides too much, never too little.
    """
    import re

    scheme, separator, rest = url.partition("://")
    if separator and "@" in rest and not rest.startswith("/"):
        before_query = rest.partition("?")[0]
        at = before_query.rfind("@") if "@" in before_query else rest.rfind("@")
        user, colon, _ = rest[:at].partition(":")
        if colon:
            url = f"{scheme}://{user}:***{rest[at:]}"
    return re.sub(r"(?i)\b(password|passwd|pwd|sslpassword)=('[^']*'|[^&\s]*)", r"\1=***", url)


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
    error.__dict__.update(state)
    return error


class _Carried:
    """Pickle and copy by state, so that a constructor may have any signature."""

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
    """What was declared cannot be used."""


class UnknownOption(ConfigError):
    """There is no option of this name; ``subject`` says where it was given."""

    def __init__(self, subject: str, name: str, candidates: Iterable[str] = (), *, hint: str = "") -> None:
        known = sorted(candidates)
        super().__init__(
            f"{subject}: option {name!r} does not exist{did_you_mean(name, known)}",
            hint=hint or (f"Options: {', '.join(known)}." if known else ""),
        )
        self.subject = subject
        self.name = name


class InvalidOption(ConfigError):
    """An option has a value that it cannot have."""

    def __init__(self, name: str, value: object, why: str, *, subject: str = "", hint: str = "") -> None:
        super().__init__(f"{subject + ': ' if subject else ''}{name}={shown(value)}: {why}", hint=hint)
        self.name = name
        self.value = shown(value)
        self.why = why
        self.subject = subject

    def about(self, subject: str) -> InvalidOption:
        """The same error, saying also whose option it was."""
        error = type(self).__new__(type(self))
        MainspringError.__init__(error, f"{subject}: {self.message}", hint=self.hint)
        error.name, error.value, error.why, error.subject = self.name, self.value, self.why, subject
        return error


class NotBuilt(ConfigError):
    """A name of a later release: known, and refused until it works."""

    def __init__(self, subject: str, name: str, *, hint: str = "") -> None:
        super().__init__(
            f"{subject}: {name!r} is not built yet",
            hint=hint or "It is reserved for a later release and does nothing today: leave it out.",
        )
        self.subject = subject
        self.name = name


class BadUrl(ConfigError):
    """The store's URL cannot be read."""

    def __init__(self, url: str, why: str, *, hint: str = "") -> None:
        super().__init__(
            f"store URL {mask_url(url)!r}: {why}",
            hint=hint or "Use sqlite:///path/file.db, postgresql://user:password@host/db or redis://host:6379/0.",
        )
        self.url = mask_url(url)


class BadSignature(ConfigError):
    """A task's signature cannot be used: an annotation that cannot be resolved or stored."""

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
    """An argument cannot be stored so that it comes back equal."""


class PayloadTooLarge(ArgumentError):
    """The arguments together are larger than a payload may be."""

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
    """An argument is nested deeper than a payload may be."""

    def __init__(self, task: str, argument: str, limit: int) -> None:
        super().__init__(
            task,
            argument,
            f"argument {argument!r} is nested deeper than {limit} levels, or contains itself",
            hint="Flatten the value, or pass it as text.",
        )
        self.limit = limit


class UnknownTask(EnqueueError, LookupError):
    """No task of this name is known here."""

    def __init__(self, task: str, candidates: Iterable[str] = (), *, hint: str = "") -> None:
        super().__init__(
            f"task {task!r} is not known{did_you_mean(task, candidates)}",
            hint=hint or 'Name its module in Mainspring(include=["..."]), or give the task this name in aliases=.',
        )
        self.task = task


class TaskNotImportable(EnqueueError):
    """A worker could not import this task's function."""

    def __init__(self, task: str, why: str, *, hint: str = "") -> None:
        super().__init__(
            f"task {task!r}: {why}",
            hint=hint or "Move the function to the top level of an importable module, or run an embedded worker.",
        )
        self.task = task


class WrongConnection(EnqueueError):
    """``connection=`` is not a connection that this store can write through."""


class InCallerTransaction(EnqueueError):
    """Not possible for a job that still waits for the caller's own transaction to commit."""


class KeyTaken(EnqueueError):
    """Another job holds the unique key: ``holder`` is its id."""

    def __init__(self, task: str, holder: UUID, *, why: str = "", hint: str = "") -> None:
        super().__init__(
            f"task {task!r}: {why or f'job {holder} holds the unique key'}",
            hint=hint or 'Wait for it or cancel it; on_conflict="return" would give you its handle.',
        )
        self.task = task
        self.holder = holder


class KeyConflict(EnqueueError):
    """The key is that of job ``holder``, which has other arguments than ``job``, the one that was not enqueued."""

    def __init__(self, task: str, holder: UUID, job: UUID, *, why: str = "") -> None:
        why = why or f"the key is that of job {holder}, which has other arguments; job {job} was not enqueued"
        super().__init__(
            f"task {task!r}: {why}",
            hint="One key stands for one request: make the key of all that differs, or send the same arguments again.",
        )
        self.task = task
        self.holder = holder
        self.job = job


class LimitTimeout(MainspringError, TimeoutError):
    """No place was free in a limiter in the time that was given: ``bucket`` is the one that was full."""

    def __init__(self, bucket: str, waited: float) -> None:
        super().__init__(
            f"no room in {bucket!r} after {waited:.1f} s",
            hint="Wait longer, or raise the limit: app.limits.set(name, size).",
        )
        self.bucket = bucket
        self.waited = waited


class LockBusy(MainspringError):
    """The lock is held: by ``holder``, in its own words, or nothing if that is not known any more."""

    def __init__(self, lock: str, holder: str = "", waited: float = 0.0, *, hint: str = "") -> None:
        after = f" after {waited:.1f} s" if waited else ""
        super().__init__(
            f"{lock} is held{f' by {holder}' if holder else ''}{after}",
            hint=hint or 'Wait for it: wait="10s"; or do without: on_busy="skip".',
        )
        self.lock = lock
        self.holder = holder
        self.waited = waited


class LockLost(MainspringError):
    """The lock was lost while it was held: another may hold it now, with a larger number than ``token``."""

    def __init__(self, lock: str, token: int, why: str) -> None:
        super().__init__(
            f"{lock} was lost: {why}",
            hint="What it guards may have run twice; give it a longer ttl, and check its number where you write.",
        )
        self.lock = lock
        self.token = token


class BreakerOpen(MainspringError):
    """A breaker is open: the code that it guards was not run. ``retry_after`` is when it may be worth another try.

    A job that ends by it is put off for as long without blame.
    """

    def __init__(self, breaker: str, retry_after: timedelta, error: str = "") -> None:
        super().__init__(
            f"breaker {breaker!r} is open{f', the last error was {error}' if error else ''}",
            hint=f"Try again in {retry_after.total_seconds():.1f} s, or close it by hand: app.breakers.reset(name).",
        )
        self.breaker = breaker
        self.retry_after = retry_after


class QueueDraining(EnqueueError):
    """The queue takes no more jobs until somebody opens it again."""

    def __init__(self, queue: str) -> None:
        super().__init__(
            f"queue {queue!r} is draining: it takes no more jobs",
            hint=f"app.queues.resume({queue!r}) opens it again; another queue: task.options(queue=...).",
        )
        self.queue = queue


class QueueDisabled(EnqueueError):
    """Somebody switched the queue off, and it rejects jobs until it is switched on again."""

    def __init__(self, queue: str, by: str = "") -> None:
        who = f" by {by}" if by else ""
        super().__init__(
            f"queue {queue!r} was disabled{who}: it rejects jobs",
            hint=f"app.queues.enable({queue!r}) switches it on; another queue: task.options(queue=...).",
        )
        self.queue = queue
        self.by = by


class QueueFull(EnqueueError):
    """As many jobs wait in the queue as may, and nothing was enqueued.

    ``retry_after`` is a guess, in seconds, of when there is room: by how long those that wait have waited.
    """

    def __init__(
        self, queue: str, max_depth: int, retry_after: float = 1.0, *, waits: bool = False, waited: float = 0.0,
        batch: int = 0,
    ) -> None:  # fmt: skip
        after = f" after {waited:.1f} s" if waited else ""
        why, hint = f"is full{after}", f"Try again in about {retry_after:.1f} s"
        if batch:
            why, hint = f"never has room for {batch:,} jobs at once", "Enqueue fewer at once"
        super().__init__(
            f"queue {queue!r} {why}: {max_depth:,} jobs may wait in it",
            hint=f"{hint}; app.queues.configure({queue!r}, max_depth=...) changes it.",
        )
        self.queue = queue
        self.max_depth = max_depth
        self.retry_after = retry_after
        self.waits = waits
        """The queue says that producers wait for room (``on_full="wait"``)."""


class NotTriggered(EnqueueError):
    """The rules of a schedule do not let it run now: ``why`` says so, ``job`` is the run that is in the way."""

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
    """The job failed for good; ``error``, ``type_name`` and ``reason`` tell why."""

    def __init__(self, job: UUID | str, error: str = "", *, type_name: str = "", reason: str = "") -> None:
        because = f" ({reason})" if reason else ""
        cause = ": ".join(part for part in (type_name, error) if part)
        super().__init__(
            f"job {job} is dead{because}{': ' + cause if cause else ''}",
            job=job,
            hint="Every attempt with its traceback is in job.info().",
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
    """The job did not finish within the time that the caller would wait. The job goes on."""

    def __init__(self, job: UUID | str, waited: float, state: str = "") -> None:
        super().__init__(
            f"job {job} did not finish within {waited:g} s{' (it is ' + state + ')' if state else ''}",
            job=job,
            hint="The job is not affected. Wait longer, or ask job.info(); is a worker running for its queue?",
        )
        self.waited = waited
        self.state = state


class ResultGone(JobError):
    """The job succeeded, but its result is not kept (any more)."""

    def __init__(self, job: UUID | str, why: str = "it was pruned") -> None:
        super().__init__(
            f"job {job} succeeded, but its result is gone: {why}",
            job=job,
            hint='Results live as long as the finished job; a task with result="ignore" keeps none.',
        )


class ResultTooLarge(JobError):
    """The job succeeded; its result was larger than the limit and was dropped."""

    def __init__(self, size: int, limit: int, *, job: UUID | str | None = None) -> None:
        super().__init__(
            f"{f'job {job}: ' if job else ''}the result takes {size:,} bytes, the limit is {limit:,}; it was dropped",
            job=job,
            hint="Store the data elsewhere and return its key.",
        )
        self.size = size
        self.limit = limit


class JobNotFound(JobError, LookupError):
    """There is no job of this id."""

    def __init__(self, job: UUID | str) -> None:
        super().__init__(
            f"job {job} does not exist",
            job=job,
            hint="It was deleted or pruned, it was made in another store or namespace, or its transaction rolled back.",
        )


class StreamFull(JobError):
    """The handler sent more than the stream of one job may hold."""

    def __init__(self, job: UUID | str, what: str) -> None:
        super().__init__(
            f"job {job}: its stream may hold {what}", job=job, hint="Send less, or store it elsewhere and send a link."
        )


class WrongState(JobError):
    """The action is not possible in the job's state."""

    def __init__(self, job: UUID | str, action: str, state: str, allowed: Iterable[str] = ()) -> None:
        possible = ", ".join(sorted(allowed))
        super().__init__(
            f"job {job} is {state}: {action} is not possible",
            job=job,
            hint=f"{action} works on jobs that are {possible}." if possible else "",
        )
        self.action = action
        self.state = state


# ---- attempts --------------------------------------------------------------------------------------


class AttemptError(MainspringError):
    """Recorded as the cause of an attempt that did not succeed."""


class SoftTimeout(AttemptError, TimeoutError):
    """The attempt ran longer than ``soft_timeout``; raised inside the handler so that it can tidy up."""

    def __init__(self, limit: float) -> None:
        super().__init__(
            f"the attempt ran longer than its soft timeout of {limit:g} s",
            hint="Finish or save the work; the hard timeout ends the attempt.",
        )
        self.limit = limit


class HardTimeout(AttemptError, TimeoutError):
    """The attempt ran longer than ``timeout`` and was ended."""

    def __init__(self, limit: float) -> None:
        super().__init__(
            f"the attempt ran longer than its timeout of {limit:g} s and was ended",
            hint="Raise timeout= on the task, or split the work into smaller jobs.",
        )
        self.limit = limit


class WorkerCrashed(AttemptError):
    """The process that ran the attempt died under it."""

    def __init__(self, worker: str, *, signal: int | None = None, exit_code: int | None = None) -> None:
        how = f" by signal {signal}" if signal else f" with exit code {exit_code}" if exit_code is not None else ""
        killed = "Killed by signal 9 without a word is most often the kernel short of memory." if signal == 9 else ""
        super().__init__(f"worker {worker} died{how} while it ran this job", hint=killed)
        self.worker = worker
        self.signal = signal
        self.exit_code = exit_code


class WorkerLost(AttemptError):
    """The worker went silent for longer than its lease; nobody is to blame."""

    def __init__(self, worker: str) -> None:
        super().__init__(
            f"worker {worker} went silent for longer than its lease",
            hint="Its host stopped, or could not reach the store; the job was given to another worker.",
        )
        self.worker = worker


class Undecodable(AttemptError):
    """The stored arguments or result do not fit the code that reads them."""

    def __init__(self, subject: str, why: str, *, hint: str = "") -> None:
        super().__init__(
            f"{subject}: the stored data cannot be read: {why}",
            hint=hint or "Was the signature changed while old jobs waited? Give new parameters a default.",
        )
        self.subject = subject
        self.why = why


class ResultNotSerializable(AttemptError):
    """The handler's result cannot be stored so that it comes back equal."""


class WrongOutcomes(AttemptError):
    """What a bulk handler returned is not one outcome for each item."""

    def __init__(self, task: str, what: str) -> None:
        super().__init__(
            f"the handler of bulk task {task!r} {what}",
            hint="Return a list with one entry for each item, in order: its result, or the exception it failed with.",
        )
        self.task = task


class Fenced(AttemptError):
    """The attempt was ended because its worker could no longer prove that it owns the job."""


# ---- stores ----------------------------------------------------------------------------------------


class StoreError(MainspringError):
    """About the store: ``url`` is its address without the password."""

    def __init__(self, message: str, *, url: str = "", hint: str = "") -> None:
        masked = mask_url(url) if url else ""
        super().__init__(f"{message} ({masked})" if masked else message, hint=hint)
        self.url = masked


class StoreUnavailable(StoreError, ConnectionError):
    """The store cannot be reached, or did not answer in time. It may be tried again."""


class StoreConflict(StoreError):
    """Somebody else changed the same thing first, or the data was refused."""


class StoreFull(StoreError):
    """The store has no room: disk, memory or a set limit."""


class SchemaOutdated(StoreError):
    """The store's schema is older or newer than this version of Mainspring can use."""


class StoreCorrupt(StoreError):
    """The store's data is damaged."""


class UnsupportedFileSystem(StoreError):
    """SQLite needs a local file system with working locks."""


class StoreReadOnly(StoreError):
    """The store takes no writes: a replica, a read-only file or a failover under way."""


class StoreNotDurable(StoreError):
    """The server is set up to keep less than ``durability`` asks for. Raised at open when ``strict`` is on."""


# ---- queues ----------------------------------------------------------------------------------------


class DrainTimeout(MainspringError, TimeoutError):
    """The queue did not get empty within the time that the caller would wait. It goes on draining."""

    def __init__(self, queue: str, waited: float, left: int) -> None:
        super().__init__(
            f"queue {queue!r} is not empty after {waited:g} s: {left:,} live job{'' if left == 1 else 's'} left",
            hint="It takes no more jobs until app.queues.resume(); is a worker running for it?",
        )
        self.queue = queue
        self.waited = waited
        self.left = left


# ---- use -------------------------------------------------------------------------------------------


class UseError(MainspringError):
    """The call is right, the place is not."""


class WouldBlockLoop(UseError, RuntimeError):
    """A blocking wait inside a running event loop; names the twin to await."""

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
    """A call to the store from inside another one of the same thread: a signal handler, a finaliser."""

    def __init__(self) -> None:
        super().__init__(
            "this thread is inside a call to the store already and would wait for itself for ever",
            hint="A signal handler or __del__ interrupted it: set a flag there, and enqueue from ordinary code.",
        )


class NoMainGuard(UseError):
    """``app.run()`` at the top level of a script that child processes import again."""

    def __init__(self, verb: str = "app.run()") -> None:
        super().__init__(
            f"{verb} was reached while a child process imported this script",
            hint=f'Write:  if __name__ == "__main__":\n              {verb}',
        )


class NotOpen(UseError):
    """The thing was closed, or was never opened."""


class NoApp(UseError):
    """A task of a ``Tasks()`` does not know which app its jobs belong to."""

    def __init__(self, task: str, apps: int = 0) -> None:
        if apps:
            said = f"task {task!r} is included in {apps} apps: which one is meant?"
            hint = f"Name the app: app.call({task!r}, ...) or app.tasks.find({task!r})."
        else:
            said = f"task {task!r} belongs to no app yet"
            hint = "Include the Tasks() it was declared on: app.include(tasks)."
        super().__init__(said, hint=hint)
        self.task = task


class ForkedWorker(UseError):
    """A worker object is used in a forked child of the process that made it."""


class InsideTest(UseError):
    """Something that cannot be done while the app is in test mode."""


class OutsideTest(UseError):
    """A test that forgot ``app.test()`` reached for a store that is not a test one."""


# ---- signals ---------------------------------------------------------------------------------------


class Signal(_Carried, Exception):
    """Raised by a handler to steer its own job. Not an error."""


class Retry(Signal):
    """Fail this attempt and run again: after the backoff, or ``after`` this time.

    It uses up one of the job's retries.
    """

    def __init__(self, after: Duration | None = None) -> None:
        super().__init__(after)
        self.after = after


class Snooze(Signal):
    """Run again later without blame: ``for_`` a time, or ``until`` a moment. The attempt is given back."""

    def __init__(self, for_: Duration | None = None, until: datetime | None = None) -> None:
        if (for_ is None) == (until is None):
            given = "both" if for_ is not None else "neither"
            raise InvalidOption("Snooze", given, "takes exactly one of for_= and until=", hint='Snooze(for_="5m")')
        super().__init__(for_ if for_ is not None else until)
        self.for_ = for_
        self.until = until


class RateLimited(Signal):
    """Somebody else's limit said no: run again after ``retry_after`` without blame.

    The rates that the job names let nothing through for as long, in the whole fleet.
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
    """End this job as dead at once, whatever retries are left."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
