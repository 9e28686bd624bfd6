"""Stage 3, the logs: what the experts did."""
