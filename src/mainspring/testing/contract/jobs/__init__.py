"""Jobs: how they enter the store, what belongs to them, what users do to them, and when they are deleted."""
