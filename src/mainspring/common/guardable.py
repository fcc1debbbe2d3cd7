"""The check of functions that a breaker or a lock decorates."""

from __future__ import annotations

from typing import Any

from mainspring.common.callables import yields
from mainspring.errors import InvalidOption


def check_guardable(fn: Any, option: str, subject: str, of_a_task: str) -> None:
    """Refuse everything but a ``def`` or an ``async def``.

    A generator function would be guarded when the generator is made, not while it runs. A static method would become an
    ordinary method: put the guard below ``@staticmethod``."""
    if not callable(fn) or isinstance(fn, (type, staticmethod)) or hasattr(fn, "declared") or yields(fn):
        hint = f"Decorate a def or an async def; {of_a_task}"
        raise InvalidOption(option, fn, "cannot be guarded", subject=subject, hint=hint)
