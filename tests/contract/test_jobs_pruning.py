from mainspring.testing.contract.jobs.pruning import *  # noqa: F403  # the classes are the tests
