"""Schedules: rows that are exchanged by number, runs, and due schedules."""
