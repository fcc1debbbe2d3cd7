"""Commands that start workers: ``mainspring worker``, ``dev``, ``demo``."""
