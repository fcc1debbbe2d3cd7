"""The one way into a final state is ``finish`` in ``lua/_finish.lua``. This module names the sets of ended jobs.

An ended job is in exactly one of these sorted sets, where :mod:`.prune` finds it. ``lua/_history.lua`` takes a job out
of them again, for a retry by hand or a deletion.
"""

from __future__ import annotations

from typing import Final

DONE: Final = "done"
"""Succeeded and cancelled jobs by their end."""
KEEP_UNTIL: Final = "keep_until"
"""Succeeded and cancelled jobs with a ``keep`` of their own, by its end."""
DIED: Final = "died"
"""Dead jobs by their end."""
KEY_UNTIL: Final = "key_until"
"""Ended jobs past their retention whose unique key still counts, by the end of the key's window."""
