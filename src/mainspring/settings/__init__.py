"""Settings of an app: one table; values come from code, the environment and the project file."""
