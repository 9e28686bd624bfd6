"""Pages and pictures for people: the outermost room, which no other imports but the commands."""

from quorum_rl.report.write import write_report

__all__ = ["write_report"]
