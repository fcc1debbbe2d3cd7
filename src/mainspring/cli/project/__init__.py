"""Commands about the code and the settings of a project: config, explain, migrate, check."""
