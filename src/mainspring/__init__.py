"""Background work for Python, on SQLite, PostgreSQL or Redis, with the same promises on each.

>>> from mainspring import Mainspring
>>> app = Mainspring("sqlite://")          # opens nothing yet
>>> @app.task(queue="email", retries=3)
... def send(to: str) -> str:
...     return f"sent to {to}"
>>> send("a@b.c")                          # a plain call stays a plain call
'sent to a@b.c'
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing
if TYPE_CHECKING:
    from mainspring import errors as errors
    from mainspring.app import Mainspring as Mainspring
    from mainspring.backoff import Backoff as Backoff
    from mainspring.call import Call as Call
    from mainspring.depends import Depends as Depends
    from mainspring.errors import BreakerOpen as BreakerOpen
    from mainspring.errors import Cancel as Cancel
    from mainspring.errors import Discard as Discard
    from mainspring.errors import NotTriggered as NotTriggered
    from mainspring.errors import RateLimited as RateLimited
    from mainspring.errors import Retry as Retry
    from mainspring.errors import Snooze as Snooze
    from mainspring.events import BreakerEvent as BreakerEvent
    from mainspring.events import Event as Event
    from mainspring.events import ScheduleEvent as ScheduleEvent
    from mainspring.info import JobInfo as JobInfo
    from mainspring.job import Job as Job
    from mainspring.keys import Key as Key
    from mainspring.limits import Concurrency as Concurrency
    from mainspring.limits import Rate as Rate
    from mainspring.middleware import Middleware as Middleware
    from mainspring.query import Query as Query
    from mainspring.secret import Secret as Secret
    from mainspring.task import AsyncTask as AsyncTask
    from mainspring.task import Task as Task
    from mainspring.tasks import Tasks as Tasks
    from mainspring.worker.context import AsyncContext as AsyncContext
    from mainspring.worker.context import Context as Context

_HOMES = {
    "AsyncContext": "mainspring.worker.context",
    "AsyncTask": "mainspring.task",
    "Backoff": "mainspring.backoff",
    "BreakerEvent": "mainspring.events",
    "BreakerOpen": "mainspring.errors",
    "Call": "mainspring.call",
    "Cancel": "mainspring.errors",
    "Context": "mainspring.worker.context",
    "Depends": "mainspring.depends",
    "Discard": "mainspring.errors",
    "Event": "mainspring.events",
    "Job": "mainspring.job",
    "JobInfo": "mainspring.info",
    "Key": "mainspring.keys",
    "Mainspring": "mainspring.app",
    "Middleware": "mainspring.middleware",
    "NotTriggered": "mainspring.errors",
    "Concurrency": "mainspring.limits",
    "Rate": "mainspring.limits",
    "RateLimited": "mainspring.errors",
    "Query": "mainspring.query",
    "Retry": "mainspring.errors",
    "ScheduleEvent": "mainspring.events",
    "Secret": "mainspring.secret",
    "Snooze": "mainspring.errors",
    "Task": "mainspring.task",
    "Tasks": "mainspring.tasks",
    "errors": "mainspring.errors",
}

__all__ = [
    "AsyncContext",
    "AsyncTask",
    "Backoff",
    "BreakerEvent",
    "BreakerOpen",
    "Call",
    "Cancel",
    "Concurrency",
    "Context",
    "Depends",
    "Discard",
    "Event",
    "Job",
    "JobInfo",
    "Key",
    "Mainspring",
    "Middleware",
    "NotTriggered",
    "Query",
    "Rate",
    "RateLimited",
    "Retry",
    "ScheduleEvent",
    "Secret",
    "Snooze",
    "Task",
    "Tasks",
    "__version__",
    "errors",
]

__version__ = "0.1.0.dev0"


def __getattr__(name: str) -> object:
    """Public names are imported when they are first used, so that ``import mainspring`` costs little."""
    home = _HOMES.get(name)
    if home is None:
        from mainspring.errors import did_you_mean

        raise AttributeError(f"module 'mainspring' has no attribute {name!r}{did_you_mean(name, __all__)}")
    from importlib import import_module

    module = import_module(home)
    value = module if name == "errors" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
