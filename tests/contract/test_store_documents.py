from mainspring.testing.contract.store.documents import *  # noqa: F403  # the classes are the tests
