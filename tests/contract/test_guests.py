from mainspring.testing.contract.guests import *  # noqa: F403  # the classes are the tests
