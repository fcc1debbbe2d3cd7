"""Queues: named lines of jobs. A queue exists once its name is used; ``app.queue(...)`` declares options for it.

What they promise
- Inside a queue a higher priority starts first, and inside a priority the job that became ready first
  (``order="fifo"``) or last (``order="lifo"``). One point of priority is worth one hour of age, so no job of a ``fifo``
  queue waits for ever.
- ``max_depth`` holds for every producer, however many there are and whether or not they declare the queue: after an
  enqueue no queue has more than ``max_depth`` waiting jobs. Jobs that were accepted before are never refused: retries,
  rescued jobs, retries by hand and follow-up jobs may exceed it. ``on_full`` decides what a full queue does: an error,
  a wait in the client, or dropping the oldest job.
- Modes hold for the whole fleet and survive restarts. ``pause`` starts no more jobs. ``drain`` accepts no more jobs and
  runs the rest. ``disable`` starts no jobs, and holds, skips or refuses new ones.
- ``weight`` divides the slots of a worker between its queues. ``fair_by`` divides the claims of one queue between the
  keys of its jobs, by their weights, whatever the order of arrival.

How they work
- Settings are stored and applied by the store in the step that inserts a job. A job keeps what it got: its order, and
  the limits of its queue. ``app.queues.configure`` overrides what the code declares, until ``reset``.
- The depth is counted under a lock of the queue that only enqueues take. It is not a counter, because every claim would
  have to change such a counter.
- A fair key is part of the name of the lane in which a job waits. The lanes of a queue and priority are served by
  virtual time: a claim puts its lane back by one over its weight. An empty lane is deleted at once, so a key without
  jobs costs nothing and collects no credit.

What they do not do
- A change of order or limits does not change jobs that are already in the queue.
- A fair key is not a limit: a free slot takes any job that may run.
- A queue has no limit with ``by=``: it has jobs of different tasks, with different arguments.

Files: ``queue`` (declarations), ``fairness`` (fair keys), ``manager`` (``app.queues``), ``records`` (what crosses the
store contract).
"""
