"""Queues: named lines of jobs, their settings and fair keys."""
