from mainspring.testing.contract.jobs.large_records import *  # noqa: F403  # the classes are the tests
