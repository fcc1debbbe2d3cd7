"""Limits: how many jobs run at once, and how many start in a time."""
