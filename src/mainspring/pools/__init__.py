"""Process pools: child processes of a worker in which jobs run, each watched, limited, killed and replaced by itself.

A worker runs ``executor="process"`` tasks in its children. Each child runs one job at a time, in its main thread.

- *Children are started by spawn*, never by a fork of the worker: a fork copies locks that other threads hold. A child
  imports the app as the worker did, starts the app's lifespans, and then asks for work.
- *One channel* connects a child with its worker, a socket pair (``channel.py``): jobs and orders to the child; ends of
  jobs, reports and the child's own state back. Messages of more than 64 KB travel in shared memory without a name, so
  none is left behind after a kill. The messages are in ``records.py``.
- *The body runs as in a thread.* A child uses the worker's own executor, contexts, dependencies, middleware and time
  limits (``launch/pool_child.py``). It decides about the end of an attempt, and the worker only passes its ack on.
- *Blame is proof.* A child writes the job that it runs into the shared state of its worker (``lease/shared_state.py``)
  before the body starts, and removes it after the end was sent. When a child dies, the worker reads there which job ran
  in it. Only this job is charged with a crash; jobs that waited in the child go to another child.
- *A body that does not end* at its time limit or a cancel order is ended by killing its child. The worker and the jobs
  beside it are not touched.
- *Children never outlive their worker*: the kernel kills them when the thread dies that started them, and the
  supervisor of the worker kills its whole process group.

What a pool does not do: it does not share work between workers, and it does not run ``async def`` tasks.
"""
