"""Faults planted into the SQLite engine, one per promise, that the contract suite must find.

Run ``python -m tests.mutations`` (all) or ``python -m tests.mutations ack-token rescue-beat`` (some).
"""
