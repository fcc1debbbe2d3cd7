from mainspring.testing.contract.jobs.enqueue import *  # noqa: F403  # the classes are the tests
