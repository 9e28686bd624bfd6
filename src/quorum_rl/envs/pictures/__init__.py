"""One file per world that has a drawing of its own, and what they share."""
