"""``mainspring flows``."""
