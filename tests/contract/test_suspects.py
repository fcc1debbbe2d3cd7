from mainspring.testing.contract.suspects import *  # noqa: F403  # the classes are the tests
