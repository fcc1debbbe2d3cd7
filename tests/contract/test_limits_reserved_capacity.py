from mainspring.testing.contract.limits.reserved_capacity import *  # noqa: F403  # the classes are the tests
