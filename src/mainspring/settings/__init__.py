"""Settings of an app: one table, read from code, environment and the project file."""
