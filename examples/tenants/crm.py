"""Three plans that share workers 5 : 3 : 2, two jobs of a customer at once, and an API that takes 100 a second."""

import asyncio

from mainspring import Concurrency, Mainspring, Rate

app = Mainspring()
PLANS = {"premium": 5, "standard": 3, "free": 2}
for plan, weight in PLANS.items():
    app.queue(plan, weight=weight)

crm = app.limiter("crm", Rate(100, per="1s"))


@app.task(limit=[crm, Concurrency(2, by="customer")])
async def sync(customer: str, page: int) -> str:
    """Replaces a call to an external API."""
    await asyncio.sleep(0.01)
    return f"page {page} of {customer}"
