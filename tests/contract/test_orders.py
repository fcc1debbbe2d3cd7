from mainspring.testing.contract.orders import *  # noqa: F403  # the classes are the tests
