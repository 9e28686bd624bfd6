"""Every table and picture of the docs, made from the results."""
