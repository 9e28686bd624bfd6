"""Training on what was released without noise, and on the rest with it (Algorithms 3 and 4)."""
