"""Limits: how many jobs run at the same time, and how many start in a window, in the whole fleet.

What they promise
- ``Concurrency(n)``: at most ``n`` jobs run at the same time. ``Rate(n, per)``: jobs with a total cost of at most ``n``
  start in any window of ``per``. With ``by=``, each value of an argument has its own count (a keyed limit).
- A limit is never exceeded: not by many workers, by crashes, or by lost replies. A rate counts a start at its claim,
  whatever happens to the attempt, and may take it for up to a thousandth of the window later than it was, never
  earlier.
- A job that waits for capacity is not touched: no attempt, no write. When capacity becomes free, a waiting job starts
  at once.
- A limiter (``app.limiter``) shares a limit between tasks, and with code outside of jobs (``with limiter:``).

How they work
- The code declares a limit by name, and the store keeps it: kind, size, window, burst. The size is read at each claim,
  so ``app.limits.set`` holds from the next claim on. It wins over the code until ``reset``.
- A job names *buckets*: a limit, and a key for a keyed limit. The limits of a job are part of the name of its lane, so
  a claim looks at lanes and not at jobs. The capacity of a bucket is decided under the lock of the bucket.
- Every way out of ``running`` (ack, rescue, retire) frees the capacity of the job in the same step.
- Code outside of a claim is a *holder* (``holder.py``): it holds capacity for a time and renews it. After a crash the
  capacity is free within 30 s. While a block waits, the store reserves the next free capacity for it, so that jobs do
  not starve blocks.
- Unkeyed concurrency limits with much headroom are *plentiful*: workers may claim such jobs ahead of a free slot. Jobs
  with keyed limits, rates, or limits with little headroom are claimed for a free slot only.
- A job that was enqueued by the name of its task, or before the limit existed, does not name the limits of its task.
  The worker that claims it hands it back with the missing buckets before it starts.

What they do not do
- A limit that the store does not know limits nothing: a job that names a deleted limit runs.
- A smaller size does not stop running jobs.
- ``window="gcra"`` spreads starts evenly, but a window may have ``n + burst`` starts.

Files: ``declare`` (what code writes, and the buckets of a job), ``limiter`` (``app.limiter``), ``holder`` (capacity
outside of a claim; breakers and locks use it too), ``manager`` (``app.limits``), ``records`` (what crosses the store
contract).
"""
