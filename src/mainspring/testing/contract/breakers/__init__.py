"""Breakers: what opens and closes them, their probes, and changes by hand."""
