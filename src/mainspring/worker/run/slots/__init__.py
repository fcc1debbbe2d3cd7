"""Where bodies run: one pool for each kind of slot."""
