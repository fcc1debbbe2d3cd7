from mainspring.testing.contract.claims.order import *  # noqa: F403  # the classes are the tests
