"""The paper's evaluation at its scale: its stages, its published settings, every table of ours."""
