"""Log lines of Mainspring itself, through the standard library's logging."""

from __future__ import annotations

import logging
import os

from mainspring.errors import InvalidOption

LEVEL = "MAINSPRING_LOG_LEVEL"


def configure(level: str | None = None) -> str:
    """Show our log on standard error at ``level``, unless the program has set up logging itself. Returns the level."""
    level = level or os.environ.get(LEVEL) or "info"
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise InvalidOption("log_level", level, "is one of debug, info, warning, error")
    logger = logging.getLogger("mainspring")
    logger.setLevel(number)
    if not logging.getLogger().handlers and not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s"))
        logger.addHandler(handler)
    return level
