from mainspring.testing.contract.claims.turns import *  # noqa: F403  # the classes are the tests
