"""What flows need of a worker: arguments that are results of other jobs, and flows in the place of a job."""
