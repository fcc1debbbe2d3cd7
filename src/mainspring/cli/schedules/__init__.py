"""``mainspring schedules``."""
