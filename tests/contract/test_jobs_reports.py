from mainspring.testing.contract.jobs.reports import *  # noqa: F403  # the classes are the tests
