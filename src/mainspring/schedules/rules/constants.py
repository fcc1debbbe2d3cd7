"""Named cron expressions: ``from mainspring.schedules.rules import WEEKDAYS``."""

from __future__ import annotations

EVERY_SECOND = "* * * * * *"
EVERY_MINUTE = "* * * * *"
EVERY_5_MINUTES = "*/5 * * * *"
EVERY_10_MINUTES = "*/10 * * * *"
EVERY_15_MINUTES = "*/15 * * * *"
EVERY_30_MINUTES = "*/30 * * * *"
HOURLY = "0 * * * *"
DAILY = "0 0 * * *"
"""At midnight, every day."""
WEEKDAYS = "0 0 * * MON-FRI"
"""At midnight, at the start of Monday to Friday."""
WEEKLY = "0 0 * * SUN"
"""At midnight, at the start of Sunday: the first day of the week in cron."""
MONTHLY = "0 0 1 * *"
QUARTERLY = "0 0 1 1,4,7,10 *"
YEARLY = "0 0 1 1 *"

MACROS = {
    "@hourly": HOURLY,
    "@daily": DAILY,
    "@midnight": DAILY,
    "@weekly": WEEKLY,
    "@monthly": MONTHLY,
    "@yearly": YEARLY,
    "@annually": YEARLY,
}
