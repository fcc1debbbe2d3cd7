"""Text that every store can keep, and advice about names of tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable


def storable(text: str) -> bool:
    """Whether every store can keep this text and find it again: it has no NUL and no lone surrogate."""
    return text.isprintable() or not re.search("[\0\ud800-\udfff]", text)


def describe_same_function(task: str, known: Iterable[str]) -> str:
    """Advice for a task that is known under another name; empty if no known name fits.

    ``tasks.add`` and ``shop.tasks.add`` are most likely one function, imported from its folder and from its package:
    one name ends with the whole other name. Names without a module do not count.
    """
    for other in sorted(known):
        longer, shorter = (task, other) if len(task) > len(other) else (other, task)
        if "." in shorter and longer.endswith(f".{shorter}"):
            module = longer.rpartition(".")[0]
            return (
                f"{shorter!r} and {longer!r} look like one function, imported under two names: "
                f"import {module} everywhere, and start workers as 'mainspring worker {module}'"
            )
    return ""
