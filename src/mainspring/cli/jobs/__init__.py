"""``mainspring jobs``, ``dead`` and ``enqueue``."""
