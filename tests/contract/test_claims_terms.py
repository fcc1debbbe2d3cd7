from mainspring.testing.contract.claims.terms import *  # noqa: F403  # the classes are the tests
