from mainspring.testing.contract.jobs.keep import *  # noqa: F403  # the classes are the tests
