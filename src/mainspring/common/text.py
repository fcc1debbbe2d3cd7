"""Text that every store can keep."""

from __future__ import annotations

import re


def storable(text: str) -> bool:
    """Whether every store can keep this text and find it again: it has no NUL and no lone surrogate."""
    return text.isprintable() or not re.search("[\0\ud800-\udfff]", text)
