from mainspring.testing.contract.schedules.swap import *  # noqa: F403  # the classes are the tests
