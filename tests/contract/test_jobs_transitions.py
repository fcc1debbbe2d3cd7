from mainspring.testing.contract.jobs.transitions import *  # noqa: F403  # the classes are the tests
