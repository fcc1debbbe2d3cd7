"""What all functions of the schema have in common."""

from __future__ import annotations

import psycopg

from mainspring.stores.postgres import PostgresStore


async def test_plans_that_must_use_an_index_are_not_compiled(store: PostgresStore, postgres_url: str) -> None:
    """A forbidden scan has a very high estimated cost. A server with JIT would spend 20 ms to compile a plan that
    runs for some microseconds.
    """
    with psycopg.connect(postgres_url) as link:
        settings = link.execute(
            "select proname, proconfig from pg_proc"
            " where pronamespace = to_regnamespace(%s) and 'enable_seqscan=off' = any(proconfig)",
            (store.schema,),
        ).fetchall()
    assert {"turn_v1", "enqueue_plain_v1", "enqueue_v1"} <= {name for name, _ in settings}
    assert [name for name, told in settings if "jit=off" not in told] == []
