"""The turn loop: when to call the store, and what to ask it for."""
