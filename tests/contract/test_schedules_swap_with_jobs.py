from mainspring.testing.contract.schedules.swap_with_jobs import *  # noqa: F403  # the classes are the tests
