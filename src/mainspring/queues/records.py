"""Records of queues that cross the store seam.

Ids are the 16 bytes of a UUID. Times and durations are microseconds; times count from 1970 on the clock of the store.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec


class FairKey(msgspec.Struct, frozen=True):
    """Whose job it is, where the claims of a queue are shared between keys."""

    key: str
    weight: float = 1
    """Its part, beside those of the other keys."""


class QueueMode(StrEnum):
    """What a queue does."""

    OPEN = "open"
    PAUSED = "paused"
    """Takes jobs and hands out none."""
    DRAINING = "draining"
    """Takes no more jobs and hands out what it has."""


class DisabledMode(StrEnum):
    """What a queue that is switched off does with new jobs; it hands out none, whichever it is."""

    HOLD = "hold"
    """Takes them: they wait."""
    SKIP = "skip"
    """Takes them and ends them at once as cancelled (skipped)."""
    REJECT = "reject"
    """Takes none."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a queue works. What is not set is left to what stands below it, at last to the defaults."""

    max_depth: int | msgspec.UnsetType = msgspec.UNSET
    """Most jobs that may wait in it; 0: any number, as if it were not set."""
    on_full: Literal["error", "wait", "drop_oldest"] | msgspec.UnsetType = msgspec.UNSET
    """What an enqueue that finds no room does; ``error`` if it is not set. To wait is the client's part."""
    order: Literal["fifo", "lifo"] | msgspec.UnsetType = msgspec.UNSET
    """Which of equal priority comes first: the oldest, or the newest; ``fifo`` if it is not set."""
    limits: tuple[tuple[str, int], ...] | msgspec.UnsetType = msgspec.UNSET
    """Limits without a key that every job of the queue names, each with what a start costs."""

    def over(self, below: QueueSettings) -> QueueSettings:
        """These, and where they say nothing those below."""
        said = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not msgspec.UNSET}
        return msgspec.structs.replace(below, **said)

    def __bool__(self) -> bool:
        return self != QueueSettings()


class QueueRow(msgspec.Struct, frozen=True):
    """A queue of which something is stored: a mode other than open, settings, or that it is disabled."""

    name: str
    mode: QueueMode
    since: int
    """When it was set to its mode; 0 for an open one."""
    declared: QueueSettings = QueueSettings()
    """As code declares them."""
    given: QueueSettings = QueueSettings()
    """What somebody set over those."""
    disabled: DisabledMode | None = None
    disabled_at: int = 0
    disabled_by: str = ""

    @property
    def settings(self) -> QueueSettings:
        """What holds."""
        return self.given.over(self.declared)
