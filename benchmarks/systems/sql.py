"""Questions to a store that speaks SQL, from what is common to them."""

from __future__ import annotations

from benchmarks.systems import Questions


def questions(undone: str, done: str = "", *, begun: str = "") -> Questions:
    """``undone`` and ``done`` are tables with their conditions, such as ``job where state < 2``."""
    return Questions(
        left=f"select exists (select 1 from {undone})",  # noqa: S608
        waiting=f"select count(*) from {undone}",  # noqa: S608
        begun=begun or f"select exists (select 1 from {done})",  # noqa: S608
        count=f"select count(*) from {done}" if done else "",  # noqa: S608
    )
