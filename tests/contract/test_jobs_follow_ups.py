from mainspring.testing.contract.jobs.follow_ups import *  # noqa: F403  # the classes are the tests
