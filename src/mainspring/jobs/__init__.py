"""Jobs: one stored request to run a task with its arguments.

What they promise
- ``enqueue`` returns after the job is stored, as durably as the store is configured. A stored job is not lost: it ends
  as succeeded, dead or cancelled.
- A job runs at least once. It may run again after a crash, a lost connection or an expired lease. Only the attempt with
  the last token can write: every write of a worker is compared by job, token and worker.
- The state machine of ``mainspring.states`` is complete: each transition has one name, and final states are left only
  by a retry by hand, which starts a new epoch.
- ``job.why()`` explains, by the rules of the claim, what prevents a job from running.

How they work
- A producer builds a call (``call``), turns it into a ``NewJob`` (``new_job``) and sends it in a batch (``call``). The
  record of a job is JSON (``JobBody``). The store keeps it and does not interpret it; what the store must know (queue,
  lane, priority, times, key, buckets) has fields of its own.
- The lane of a job (``lanes``) names everything that can hold it back: queue, kind of slot, labels, pinned version,
  limits, fair key. A claim looks at lanes, so its cost does not depend on the number of waiting jobs.
- A unique key (``keys``) is held by one job while the job is live, and until its window is over. The modes debounce,
  throttle and keep_last replace a waiting job by the newest enqueue.
- A ``Job`` is a handle: an id and a way to the store. Its attributes do no I/O. ``result``, ``join``, ``watch`` and
  ``stream`` poll the store, at first every 2 ms, then every 0.1 s.
- Actions on many jobs (``actions``) work in slices, on each job at most once, so they are not one transaction.

What they do not do
- They do not promise exactly one execution: write handlers that can run twice.
- A handle does not cache: each call of ``info`` reads the store.
- Results and ended jobs are not kept for ever: see retention (``keep``, ``keep_dead``).

Files: ``records``, ``outcomes``, ``query`` (what crosses the store contract), ``keys``, ``lanes``, ``call`` and
``new_job`` (from a call to the store), ``job`` (the handle), ``info`` and ``why`` (what users read), ``actions``
(changes of many jobs), ``manager`` (``app.jobs``), ``dead`` (``app.dead``), ``check_stored`` (checks stored jobs
against the code).
"""
