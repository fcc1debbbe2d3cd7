"""Claims and acks: turns, the order of claims, tokens, cancel orders, promotion, lost replies and wake-ups."""
