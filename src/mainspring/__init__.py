"""Background jobs for Python on SQLite, PostgreSQL or Redis, with the same guarantees on each.

>>> from mainspring import Mainspring
>>> app = Mainspring("sqlite://")          # opens nothing yet
>>> @app.task(queue="email", retries=3)
... def send(to: str) -> str:
...     return f"sent to {to}"
>>> send("a@b.c")                          # a plain call runs the function
'sent to a@b.c'
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing.TYPE_CHECKING without importing typing
if TYPE_CHECKING:
    from mainspring import errors as errors
    from mainspring.app import Mainspring as Mainspring
    from mainspring.common.backoff import Backoff as Backoff
    from mainspring.common.secret import Secret as Secret
    from mainspring.errors import BreakerOpen as BreakerOpen
    from mainspring.errors import Cancel as Cancel
    from mainspring.errors import Discard as Discard
    from mainspring.errors import FlowClosed as FlowClosed
    from mainspring.errors import HardTimeout as HardTimeout
    from mainspring.errors import JobCancelled as JobCancelled
    from mainspring.errors import JobDead as JobDead
    from mainspring.errors import KeyConflict as KeyConflict
    from mainspring.errors import KeyTaken as KeyTaken
    from mainspring.errors import LimitTimeout as LimitTimeout
    from mainspring.errors import LockBusy as LockBusy
    from mainspring.errors import LockLost as LockLost
    from mainspring.errors import MainspringError as MainspringError
    from mainspring.errors import NotFound as NotFound
    from mainspring.errors import NotTriggered as NotTriggered
    from mainspring.errors import QueueFull as QueueFull
    from mainspring.errors import RateLimited as RateLimited
    from mainspring.errors import ResultGone as ResultGone
    from mainspring.errors import ResultTimeout as ResultTimeout
    from mainspring.errors import Retry as Retry
    from mainspring.errors import Snooze as Snooze
    from mainspring.errors import SoftTimeout as SoftTimeout
    from mainspring.errors import StoreUnavailable as StoreUnavailable
    from mainspring.flows.batch import Batch as Batch
    from mainspring.flows.dag import Dag as Dag
    from mainspring.flows.flow import Chain as Chain
    from mainspring.flows.flow import Flow as Flow
    from mainspring.flows.flow import Group as Group
    from mainspring.flows.flow import chain as chain
    from mainspring.flows.flow import chord as chord
    from mainspring.flows.flow import group as group
    from mainspring.jobs.call import Call as Call
    from mainspring.jobs.info import JobInfo as JobInfo
    from mainspring.jobs.job import Job as Job
    from mainspring.jobs.keys import Key as Key
    from mainspring.jobs.query import Query as Query
    from mainspring.limits.declare import Concurrency as Concurrency
    from mainspring.limits.declare import Rate as Rate
    from mainspring.tasks.decorators import Tasks as Tasks
    from mainspring.tasks.dependencies import Depends as Depends
    from mainspring.tasks.events import BreakerEvent as BreakerEvent
    from mainspring.tasks.events import Event as Event
    from mainspring.tasks.events import ScheduleEvent as ScheduleEvent
    from mainspring.tasks.middleware import Middleware as Middleware
    from mainspring.tasks.task import AsyncTask as AsyncTask
    from mainspring.tasks.task import Task as Task
    from mainspring.worker.run.context import AsyncContext as AsyncContext
    from mainspring.worker.run.context import Context as Context

_HOMES = {
    "group": "mainspring.flows.flow",
    "chord": "mainspring.flows.flow",
    "chain": "mainspring.flows.flow",
    "Group": "mainspring.flows.flow",
    "FlowClosed": "mainspring.errors",
    "Flow": "mainspring.flows.flow",
    "Dag": "mainspring.flows.dag",
    "Chain": "mainspring.flows.flow",
    "Batch": "mainspring.flows.batch",
    "AsyncContext": "mainspring.worker.run.context",
    "AsyncTask": "mainspring.tasks.task",
    "Backoff": "mainspring.common.backoff",
    "BreakerEvent": "mainspring.tasks.events",
    "BreakerOpen": "mainspring.errors",
    "Call": "mainspring.jobs.call",
    "Cancel": "mainspring.errors",
    "Context": "mainspring.worker.run.context",
    "Depends": "mainspring.tasks.dependencies",
    "Discard": "mainspring.errors",
    "Event": "mainspring.tasks.events",
    "Job": "mainspring.jobs.job",
    "JobInfo": "mainspring.jobs.info",
    "Key": "mainspring.jobs.keys",
    "Mainspring": "mainspring.app",
    "Middleware": "mainspring.tasks.middleware",
    "NotTriggered": "mainspring.errors",
    "Concurrency": "mainspring.limits.declare",
    "Rate": "mainspring.limits.declare",
    "RateLimited": "mainspring.errors",
    "Query": "mainspring.jobs.query",
    "Retry": "mainspring.errors",
    "ScheduleEvent": "mainspring.tasks.events",
    "Secret": "mainspring.common.secret",
    "Snooze": "mainspring.errors",
    "Task": "mainspring.tasks.task",
    "Tasks": "mainspring.tasks.decorators",
    "HardTimeout": "mainspring.errors",
    "JobCancelled": "mainspring.errors",
    "JobDead": "mainspring.errors",
    "KeyConflict": "mainspring.errors",
    "KeyTaken": "mainspring.errors",
    "LimitTimeout": "mainspring.errors",
    "LockBusy": "mainspring.errors",
    "LockLost": "mainspring.errors",
    "MainspringError": "mainspring.errors",
    "NotFound": "mainspring.errors",
    "QueueFull": "mainspring.errors",
    "ResultGone": "mainspring.errors",
    "ResultTimeout": "mainspring.errors",
    "SoftTimeout": "mainspring.errors",
    "StoreUnavailable": "mainspring.errors",
    "errors": "mainspring.errors",
}

__all__ = [
    "AsyncContext",
    "AsyncTask",
    "Backoff",
    "Batch",
    "BreakerEvent",
    "BreakerOpen",
    "Call",
    "Cancel",
    "Chain",
    "Concurrency",
    "Context",
    "Dag",
    "Depends",
    "Discard",
    "Event",
    "Flow",
    "FlowClosed",
    "Group",
    "HardTimeout",
    "Job",
    "JobCancelled",
    "JobDead",
    "JobInfo",
    "Key",
    "KeyConflict",
    "KeyTaken",
    "LimitTimeout",
    "LockBusy",
    "LockLost",
    "Mainspring",
    "MainspringError",
    "Middleware",
    "NotFound",
    "NotTriggered",
    "Query",
    "QueueFull",
    "Rate",
    "RateLimited",
    "ResultGone",
    "ResultTimeout",
    "Retry",
    "ScheduleEvent",
    "Secret",
    "Snooze",
    "SoftTimeout",
    "StoreUnavailable",
    "Task",
    "Tasks",
    "__version__",
    "chain",
    "chord",
    "errors",
    "group",
]

__version__ = "0.1.0.dev0"


if not TYPE_CHECKING:  # a type checker must not accept every name

    def __getattr__(name: str) -> object:
        """Import a public name at its first use, so that ``import mainspring`` is fast."""
        from importlib import import_module

        home = _HOMES.get(name)
        if home is None:
            from sys import _getframe

            # `from mainspring import x` asks here first, and replaces an AttributeError by its own message.
            importing = _getframe(1).f_globals.get("__name__") == "importlib._bootstrap"
            raise import_module("mainspring.common.handles").missing_name(__name__, name, __all__, importing=importing)
        module = import_module(home)
        value = module if name == "errors" else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
