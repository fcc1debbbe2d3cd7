"""What every engine checks of the jobs that ``retry_flow`` names."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.errors import StoreConflict
from mainspring.jobs.records import FlowRetry
from mainspring.stores.base import MOST_RETRIED


def distinct_retries(retries: Sequence[FlowRetry]) -> list[FlowRetry]:
    """The first entry of each job. ``StoreConflict`` if there are more entries than one call takes."""
    if len(retries) > MOST_RETRIED:
        raise StoreConflict(
            f"one call retries at most {MOST_RETRIED:,} jobs of a flow, not {len(retries):,}",
            hint="Retry the flow in several calls.",
        )
    found: dict[bytes, FlowRetry] = {}
    for retry in retries:
        found.setdefault(retry.id, retry)
    return list(found.values())
