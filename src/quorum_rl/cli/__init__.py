"""The sub-commands: dataclasses whose fields are the flags, and whose `run` does the work."""
