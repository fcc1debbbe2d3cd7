"""Call the hooks of an app when something happens to jobs, breakers and schedules."""
