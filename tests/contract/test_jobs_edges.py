from mainspring.testing.contract.jobs.edges import *  # noqa: F403  # the classes are the tests
