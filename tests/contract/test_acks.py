from mainspring.testing.contract.acks import *  # noqa: F403  # the classes are the tests
