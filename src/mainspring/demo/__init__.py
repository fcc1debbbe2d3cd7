"""``mainspring demo``: a live fleet on a SQLite file, one worker killed before your eyes.

The exit code says whether anything was lost.
"""
