from mainspring.testing.contract.claims.promote import *  # noqa: F403  # the classes are the tests
