"""Queries: the same jobs are found, counted, tallied and changed."""
