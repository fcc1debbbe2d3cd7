"""Breakers: stop jobs and other code while a service that they use keeps failing, for the whole fleet.

What they promise
- Closed: everything runs. After ``failures=`` failures in a row, or a share of failures of at least ``rate=``, the
  breaker opens. Open: nothing new starts; running jobs continue. After ``open_for`` it is half open: ``probes`` jobs or
  calls start. The first probe that succeeds closes it, the first that fails opens it again.
- Jobs of a task with ``breaker=`` wait while it is open. They use no attempt and no retry.
- ``with breaker:`` and ``@breaker`` guard other code: ``BreakerOpen`` is raised at once, or ``fallback`` is called.
- The state is shared: a failure on one machine counts for every machine.

How they work
- A breaker is an unkeyed limit of the kind ``breaker`` in the store. Its jobs wait in lanes like the jobs of a limit:
  an open breaker costs a claim one check, however many jobs wait.
- The worker decides what is a failure: an error of ``trip_on``, or any error that the task retries (``Ack.fault``).
- One pure function counts, opens and closes: ``count_ends`` computes the next row of a breaker from its row and some
  ends of work. The store keeps the row and exchanges it only if its number is still the one that the change was
  computed from. What a claim needs is the moment until which the breaker is open, and the number of probes.
- A worker writes the row in the turn that carries the acks (``worker/events/breaker_counts.py``). If another worker
  wrote it before, the reply has the new row, and the worker counts again with the next turn, at once. Until then a
  few more jobs may start. Blocks, operators, and processes that take the jobs of a lost worker read and write the row
  until no other wrote in between (``swap``). A lost worker counts as one failure for each breaker that its jobs name.
- A probe is a job that was claimed after the breaker became half open. There is no flag that a crash could leave
  behind. The ends of jobs that were claimed earlier are ignored until the breaker is closed.
- A closed breaker without failures has nothing to forget, so a success only reads the row. A breaker with ``rate=``
  counts successes in memory and writes their number once a second, or together with a failure.
- The writer of a row publishes the events of its own write, so each event is published once.
- Code in a block asks for a probe as a holder of capacity (``limits/holder.py``).

What they do not do
- They do not cancel running jobs, and they do not fail waiting jobs.
- They have no keys: one breaker serves all jobs that name it.
- If the store cannot be reached, a guarded block runs: the breaker lets it through and logs a warning.
- They do not keep every count: ends that wait for their write are lost with their process. Decision 49 has the cases.

Files: ``declare`` (options, and what counts as a failure), ``counting`` (the rules), ``swap`` (compare-and-set outside
of turns), ``breaker`` (``app.breaker``), ``manager`` (``app.breakers``), ``records`` (what crosses the store contract).
"""
