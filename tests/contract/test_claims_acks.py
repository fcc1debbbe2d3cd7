from mainspring.testing.contract.claims.acks import *  # noqa: F403  # the classes are the tests
