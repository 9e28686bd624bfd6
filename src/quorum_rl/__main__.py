"""`python -m quorum_rl` is the `quorum` command."""

from quorum_rl.cli.main import main

main()
