"""``mainspring demo``: three workers on a SQLite file; one is killed, and its jobs run again.

The exit code is 0 if no job was lost.
"""
