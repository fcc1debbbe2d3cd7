"""Records of queues that the core and a store exchange.

An id is the 16 bytes of a UUID. Times and durations are in microseconds; times count from 1970, on the store's clock.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec


class FairKey(msgspec.Struct, frozen=True):
    """The key between which the claims of a queue are shared, for example a tenant."""

    key: str
    weight: float = 1
    """The share of this key relative to the weights of the other keys."""


class QueueMode(StrEnum):
    """What a queue does with new and waiting jobs."""

    OPEN = "open"
    PAUSED = "paused"
    """Accepts jobs and hands out none."""
    DRAINING = "draining"
    """Accepts no jobs and hands out the waiting ones."""


class DisabledMode(StrEnum):
    """What a disabled queue does with new jobs. It hands out none in every mode."""

    HOLD = "hold"
    """Accepts them: they wait."""
    SKIP = "skip"
    """Accepts them and ends them at once as cancelled (skipped)."""
    REJECT = "reject"
    """Refuses them."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a queue. A setting that is not set has the declared value, or else the default."""

    max_depth: int | msgspec.UnsetType = msgspec.UNSET
    """The largest number of waiting jobs; 0 means any number, as if it were not set."""
    on_full: Literal["error", "wait", "drop_oldest"] | msgspec.UnsetType = msgspec.UNSET
    """What an enqueue into a full queue does; ``error`` if it is not set. The client does the waiting."""
    order: Literal["fifo", "lifo"] | msgspec.UnsetType = msgspec.UNSET
    """Which job of equal priority is first: the oldest (``fifo``, if not set) or the newest (``lifo``)."""
    limits: tuple[tuple[str, int], ...] | msgspec.UnsetType = msgspec.UNSET
    """Unkeyed limits that every job of the queue names, each with the cost of a start."""

    def over(self, below: QueueSettings) -> QueueSettings:
        """These settings, and those of ``below`` where these are not set."""
        said = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not msgspec.UNSET}
        return msgspec.structs.replace(below, **said)

    def __bool__(self) -> bool:
        return self != QueueSettings()


class QueueRow(msgspec.Struct, frozen=True):
    """A queue with something stored: a mode other than open, settings, or that it is disabled."""

    name: str
    mode: QueueMode
    since: int
    """When the mode was set; 0 for an open queue."""
    declared: QueueSettings = QueueSettings()
    """The settings that code declares."""
    given: QueueSettings = QueueSettings()
    """The settings set at run time, which override the declared ones."""
    disabled: DisabledMode | None = None
    disabled_at: int = 0
    disabled_by: str = ""

    @property
    def settings(self) -> QueueSettings:
        """The settings in effect."""
        return self.given.over(self.declared)

    @property
    def closed(self) -> bool:
        """Whether no job of the queue is started: it is paused or disabled."""
        return self.mode is QueueMode.PAUSED or self.disabled is not None
