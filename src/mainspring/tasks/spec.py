"""What a worker knows about a task: the function and its options, resolved and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from mainspring.errors import BadSignature

if TYPE_CHECKING:
    from mainspring.breakers.declare import DeclaredBreaker
    from mainspring.codec import Signature
    from mainspring.common.backoff import Backoff
    from mainspring.limits.declare import BoundLimit
    from mainspring.limits.records import Limit
    from mainspring.tasks.bulk import Bulk
    from mainspring.tasks.dependencies import DependencyPlan


def find_bad_signatures(tasks: Iterable[TaskSpec]) -> list[BadSignature]:
    """Resolve the annotations of these tasks; an error for each task of which no job can be enqueued or read."""
    found = {}
    for task in tasks:
        try:
            task.signature.check(returns=task.keep_result)
        except BadSignature as error:
            found[task.name] = error
    return list(found.values())


class TaskSpec(NamedTuple):
    """One task as a worker sees it. Durations are in microseconds; a timeout of 0 means no timeout."""

    name: str
    fn: Callable[..., Any]
    kind: Literal["async", "thread", "process"]
    signature: Signature
    takes_context: bool
    retries: int
    timeout: int
    soft_timeout: int
    backoff: Backoff
    retry_on: tuple[type[BaseException], ...]
    """Empty: every exception may be retried."""
    never_retry_on: tuple[type[BaseException], ...]
    retry_if: Callable[[BaseException], bool] | None
    crashes: int
    early: bool
    strict: bool
    """``fence="strict"``: the body ends before the lease does."""
    keep_result: bool
    plan: DependencyPlan | None = None
    """The dependencies of the function, if it has any."""
    upgrade: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Converts arguments of an older signature into arguments of the current one."""
    result_limit: int = 1_000_000
    """The maximum size of a result in bytes."""
    hide: tuple[str, ...] = ()
    """The arguments whose values are never shown."""
    needs: tuple[str, ...] = ()
    """The labels that a worker must have, sorted."""
    pinned: bool = False
    """Whether only workers of the app version that enqueued a job run the job."""
    bulk: Bulk | None = None
    """How the jobs of a bulk task share calls."""
    bounds: tuple[BoundLimit, ...] = ()
    """The limits of its jobs, and where their keys and costs come from."""
    breaker: DeclaredBreaker | None = None
    """The breaker of the task; its limit is in ``bounds``."""
    options: Mapping[str, Any] = {}
    """All options of the task in normal form, by name."""
    pool: str = ""
    """The pool of a task with the kind ``process``."""

    @property
    def slots(self) -> str:
        """The name of its slots among the slots of a worker."""
        return f"process:{self.pool}" if self.pool else self.kind

    def in_thread(self) -> TaskSpec:
        """The same task for a thread: inside a pool child, and in tests."""
        return self._replace(kind="thread", pool="") if self.pool else self

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits of its jobs."""
        return tuple(bound.limit for bound in self.bounds)
