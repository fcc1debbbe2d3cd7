"""Where jobs go when they end. The one way into a final state is ``finish_v1`` in ``sql/finish.sql``."""

from __future__ import annotations

from mainspring.states import FINAL, LIVE, State

TABLES: dict[str, frozenset[State]] = {
    "jobs": LIVE,
    "finished": FINAL - {State.DEAD},
    "dead": frozenset({State.DEAD}),
}
"""The states of the jobs in each table: ``finish`` moves a row of ``jobs`` to one of the other two."""
