"""Device memory: what encoders need, what fits, token budgets."""
