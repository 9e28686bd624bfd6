"""Quorum: one policy from the logs of many experts, private for each of them."""

__version__ = "0.1.0"
