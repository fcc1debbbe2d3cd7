"""Options of tasks, jobs, queues, schedules, breakers and workers: each is declared once, in :mod:`.table`."""
