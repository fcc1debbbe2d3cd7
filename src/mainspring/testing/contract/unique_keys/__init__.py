"""Unique keys: one job holds a key, and in some modes the newest enqueue replaces the waiting job."""
