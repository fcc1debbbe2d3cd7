from mainspring.testing.contract.claims.tokens_and_clocks import *  # noqa: F403  # the classes are the tests
