"""Reproduce the paper's evaluation in one world: `python -m reproduction CartPole`."""

from collections.abc import Sequence

from quorum_rl.cli.main import run_alone
from reproduction.paper import Paper


def main(words: Sequence[str] | None = None) -> None:
    """Exit status: 0 done, 2 the user can mend it, 130 interrupted."""
    run_alone(Paper, "python -m reproduction", words)


if __name__ == "__main__":
    main()
