"""Locks, semaphores and elections for any code, in the whole fleet.

What they promise
- ``app.lock(name)``: one holder at a time. ``app.semaphore(name, size)``: ``size`` holders. ``app.election(name)``: one
  leader at a time, with a term.
- The lock is renewed in the background while the process lives. After a crash it is free within its ``ttl``.
- Every hold has a fencing token: a number that is larger than the token of every earlier holder. A service that refuses
  smaller tokens is safe even against a holder that was stopped for longer than its ttl.
- A holder learns of a loss before another can hold the lock, by its own clock: ``lost`` is true, ``check`` and
  ``release`` raise ``LockLost``, and the body of an ``async with`` is cancelled.

How they work
- A lock is a bucket of size 1 in the store, and its holder is a holder of capacity (``limits/holder.py``). All locks
  share one limit and are its keys, so millions of names leave no rows behind. A semaphore is a limit of its own: its
  size can change.
- A renewal is sent at every third of the ttl, from the background loop, so a blocked event loop does not lose the lock.
  The hold ends, by the clock of this process, one ttl after the last confirmed renewal was *sent* (``hold.py``): so the
  store cannot give the lock to another holder earlier.
- A renewal never takes the lock again and never shortens a hold, so a late renewal cannot undo a release or an
  ``extend``.
- A caller that waits tries again with growing, jittered pauses of at most one second.

What they do not do
- There is no queue of waiting callers: which of them gets a free lock is random.
- A lock is not reentrant. Each ``with`` and each ``acquire`` is a hold of its own, also on the same object.
- A lock without fencing is advisory: a process that was stopped for longer than the ttl may still write after it wakes
  up. Pass the token to the service that you protect.
- A forked child does not hold the locks of its parent.

Files: ``names`` (buckets, checks), ``hold`` (one hold: renewal, loss, token), ``entries`` (blocks of one lock object),
``lock`` (locks and semaphores), ``election`` and ``candidate`` (elections), ``manager`` (``app.locks``).
"""
