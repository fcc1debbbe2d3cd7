from mainspring.testing.contract.looking import *  # noqa: F403  # the classes are the tests
