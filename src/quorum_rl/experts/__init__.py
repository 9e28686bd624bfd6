"""Stage 2, the experts: who is protected."""
