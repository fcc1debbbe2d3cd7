from mainspring.testing.contract.jobs.actions import *  # noqa: F403  # the classes are the tests
