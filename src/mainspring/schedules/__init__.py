"""Schedules: stored rules that turn occurrences into jobs, exactly one job for each occurrence."""
