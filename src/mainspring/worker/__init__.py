"""A worker: a process that claims jobs from the store and runs them.

- ``worker.py`` builds the parts of one worker process, runs them and shuts them down.
- ``loop/`` decides when to call the store and what to ask for; ``run/`` runs the claimed jobs and makes their acks.
- ``lease/`` keeps the worker's lease by heartbeats; ``supervise/`` starts, watches and kills worker processes.
- ``events/`` calls hooks; ``services/`` are background services, which ``launch/services.py`` adds to the worker.
"""
