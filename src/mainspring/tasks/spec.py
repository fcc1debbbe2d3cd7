"""What a worker must know of a task: the function and its policy, resolved and checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from mainspring.breakers.declare import DeclaredBreaker
    from mainspring.codec import Signature
    from mainspring.common.backoff import Backoff
    from mainspring.limits.declare import BoundLimit
    from mainspring.limits.records import Limit
    from mainspring.tasks.bulk import Bulk
    from mainspring.tasks.dependencies import DependencyPlan


class TaskSpec(NamedTuple):
    """One task as the worker sees it. Durations in microseconds; a timeout of 0 means none."""

    name: str
    fn: Callable[..., Any]
    kind: Literal["async", "thread"]
    signature: Signature
    takes_context: bool
    retries: int
    timeout: int
    soft_timeout: int
    backoff: Backoff
    retry_on: tuple[type[BaseException], ...]
    """Empty: every error may be retried."""
    never_retry_on: tuple[type[BaseException], ...]
    retry_if: Callable[[BaseException], bool] | None
    crashes: int
    early: bool
    strict: bool
    """``fence="strict"``: the body ends before the lease does."""
    keep_result: bool
    plan: DependencyPlan | None = None
    """The dependencies to be supplied, if the function has any."""
    upgrade: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Makes arguments of today's signature from those of an older one."""
    result_limit: int = 1_000_000
    """Most bytes of a result."""
    hide: tuple[str, ...] = ()
    """The arguments whose values are shown to nobody."""
    needs: tuple[str, ...] = ()
    """The labels that a worker must have, sorted."""
    pinned: bool = False
    """Its jobs are run by workers of the version that enqueued them."""
    bulk: Bulk | None = None
    """How its jobs share calls, if they do."""
    bounds: tuple[BoundLimit, ...] = ()
    """The limits that its jobs name, and where their keys and costs come from."""
    part: str = ""
    """The part that all its jobs are of, if they are."""
    breaker: DeclaredBreaker | None = None
    """What guards it; its limit is one of those above."""

    @property
    def limits(self) -> tuple[Limit, ...]:
        """Those that its jobs name."""
        return tuple(bound.limit for bound in self.bounds)
