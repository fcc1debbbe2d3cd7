"""Faults that are planted into the SQLite engine, one for each promise. The contract suite must find every one.

Run ``python -m tests.mutations`` (all) or ``python -m tests.mutations ack-token rescue-beat`` (some).
"""
