"""Schedules: jobs that start by a rule, for example ``@app.schedule(cron="0 3 * * *", tz="Europe/Kyiv")``.

What they promise
- Each occurrence makes one job, however many workers run, also when processes, connections or clocks fail.
- Schedules are stored. They survive restarts, and every worker with the role ``scheduler`` runs them. There is no
  leader and no separate scheduler process.
- A run is an ordinary job: queue, retries, limits, hooks and results work as for every job.
- An interval is anchored once. It does not drift, and it does not move when a process starts.
- Occurrences that no scheduler handled within 30 s are missed: ``misfire`` decides whether they run late. ``overlap``
  decides what happens while an earlier run has not ended. The history records what happened to each occurrence.
- A schedule whose runs fail ``max_failures`` times in a row is disabled, and enabled on trial after a pause.

How they work
- The store keeps one row for each schedule: a name, a revision number, the time of the next look, and a document that
  the store does not interpret. The document is a ``SchedulePlan`` (``plan/state.py``): the definition, the next
  occurrence, the open runs and the failure count.
- Every second at the latest, a scheduler (``service.py``) reads the rows whose time has come. The pure function
  ``plan.step`` computes the next row from the row, the time and the states of its runs. The scheduler then swaps the
  row together with the new jobs and the history records: ``Store.swap_schedule``, one atomic compare-and-set on the
  revision number. If two schedulers read the same row, the store accepts one swap and refuses the other. So a decision
  is carried out once, and the logic is written once for three engines.
- Manual changes take the same path (``compare_and_set.py``): ``edit.py`` puts, enables, disables and deletes,
  ``manual_runs.py`` triggers and backfills.
- When a worker starts, ``sync.py`` stores the schedules of the code. The code decides what a schedule is, operators
  decide whether it is enabled. Older code does not replace what newer code has stored.
- ``blocks``, ``group`` and "one run at a time" are concurrency limits that the jobs name; the claim decides them.
- ``depends_on`` is decided by the step (``plan/dependencies.py``). The row of each schedule has the number of its last
  success. A dependent schedule stores the numbers that its last start used, and starts again when each number is
  greater. Until then one occurrence waits in its row, without a job. Jobs enqueued by hand neither wait nor count.
- Time is the time of the store. If the clock of the store goes back, a scheduler looks at every row that waits for an
  end or a pause (``store_time.py``).

What they do not do
- They do not run a job at an exact microsecond: a run starts when a scheduler has looked and a worker has a free slot.
- They do not prevent a second execution of a job after a crash; that is the rule for every job.
- A schedule of the code cannot be replaced at run time. It can be enabled, disabled, triggered and backfilled.
- At most 100 missed occurrences run late, and a schedule has at most 100 open runs.

Files: ``declare`` (what code writes), ``relations`` (depends_on, blocks, group), ``build_definition`` (declaration to
stored definition), ``rules/`` (cron, every, at, after; pure), ``plan/`` (decisions; pure), ``service`` (the loop in the
worker), ``sync``, ``compare_and_set``, ``edit``, ``manual_runs``, ``info`` (what users read), ``manager``
(``app.schedules``), ``records`` (what crosses the store contract).
"""
