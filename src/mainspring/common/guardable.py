"""Which functions a breaker or a lock can stand around."""

from __future__ import annotations

from typing import Any

from mainspring.common.callables import yields
from mainspring.errors import InvalidOption


def check_guardable(fn: Any, option: str, subject: str, of_a_task: str) -> None:
    """A ``def`` or an ``async def``. A generator would be entered when it is made and not when it runs, and a static
    method would become a plain one: the guard goes below ``@staticmethod``."""
    if not callable(fn) or isinstance(fn, (type, staticmethod)) or hasattr(fn, "declared") or yields(fn):
        hint = f"Decorate a def or an async def; {of_a_task}"
        raise InvalidOption(option, fn, "cannot guard that", subject=subject, hint=hint)
