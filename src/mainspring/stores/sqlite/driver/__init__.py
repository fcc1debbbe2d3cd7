"""Everything about SQLite itself: the file, the connections, transactions, statements, the schema and wake-ups.

| module | holds |
|---|---|
| ``database`` | ``write`` and ``read`` run a function in a transaction; the writing connection with its group commit |
| ``reader`` | the reading connection of the process |
| ``transaction`` | ``Tx``: the open transaction as the functions of the engine see it; blocks of ``seq`` values |
| ``statements``, ``constants`` | the SQL texts of ``sql/*.sql``, and the names that are filled into them |
| ``schema`` | the numbered migrations |
| ``connections`` | how connections are opened |
| ``write_lock`` | taking the write lock of the file fairly; syncing the log after a commit without it |
| ``files`` | where the file may be, whether it was replaced, the disk reserve for acks |
| ``memory`` | a database in memory that the stores of one process share |
| ``wakeups``, ``fork`` | wake-ups between processes; what happens to connections at a fork |
| ``clock``, ``errors`` | the time of the store; the meaning of SQLite's errors |
"""
