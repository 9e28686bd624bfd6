"""The budget in operation: what was spent, where the random bits came from, what it certifies."""
