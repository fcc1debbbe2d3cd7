from mainspring.testing.contract.jobs.follow_up_ends import *  # noqa: F403  # the classes are the tests
