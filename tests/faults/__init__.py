"""What whole workers do when a server, a wire or a connection fails. Each test names its fault by number.

Where the others are:

| fault | tests |
|---|---|
| 1, 5, 6 | `tests/processes/test_kill.py`, `tests/processes/test_timeouts.py` |
| 2 | `tests/processes/test_stopped.py` |
| 3, 4 | `tests/processes/test_shutdown.py` |
| 7, 8 | `tests/processes/test_blocking.py` |
| 10, 11, 12 | `tests/stores/redis/` |
| 23 | `tests/rows/test_store.py`, `tests/rows/test_trouble.py` |
| 25, 26 | `tests/rows/test_bad_input.py`, `tests/jobs/test_running.py` |
| 29, 30, 31, 32 | `tests/stores/postgres/` |
| 35 | `tests/processes/test_failpoints.py` |
| all of them, at random | `tests/processes/test_chaos.py`, `./dev soak` |
"""
