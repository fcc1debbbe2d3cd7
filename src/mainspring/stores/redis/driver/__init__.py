"""The Redis client of Mainspring: connections, scripts, key names, wake-ups, and the checks when a store is opened."""
