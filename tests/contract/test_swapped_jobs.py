from mainspring.testing.contract.swapped_jobs import *  # noqa: F403  # the classes are the tests
