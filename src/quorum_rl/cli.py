"""The `quorum` command: reads the command line, and turns user errors into one sentence.

Only light modules are imported here; a command imports JAX when it runs.
"""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Protocol

import tyro

from quorum_rl import __version__
from quorum_rl.commands.demo import Demo
from quorum_rl.commands.demos import Demos
from quorum_rl.commands.experts import Experts
from quorum_rl.commands.fit import Fit
from quorum_rl.commands.ledger import Certificates, Ledgers
from quorum_rl.commands.plan import Plan
from quorum_rl.commands.release import Release
from quorum_rl.commands.worlds import Worlds
from quorum_rl.errors import Interrupted, QuorumError

DESCRIPTION = """Quorum is to learn one policy from the logged decisions of many experts, so that
nobody can tell from the policy whether any one expert took part.

The stages so far: worlds, experts (who is protected), demos (what they did), plan, release (which
prefixes may be published) and fit (both stages of learning), with a ledger of what was spent and
its certificate. Start with 'quorum demo', then 'quorum fit --help'."""

Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Worlds, tyro.conf.subcommand("worlds")]
    | Annotated[Experts, tyro.conf.subcommand("experts")]
    | Annotated[Demos, tyro.conf.subcommand("demos")]
    | Annotated[Plan, tyro.conf.subcommand("plan")]
    | Annotated[Release, tyro.conf.subcommand("release")]
    | Annotated[Fit, tyro.conf.subcommand("fit")]
    | Annotated[Ledgers, tyro.conf.subcommand("ledger")]
    | Annotated[Certificates, tyro.conf.subcommand("certificate")]
)


class Runnable(Protocol):
    """A command as the command line made it."""

    def run(self) -> None: ...


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. Exit status: 0 done, 2 the user can mend it, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        print(f"quorum {__version__}")
        return
    command: Runnable = tyro.cli(
        Command,
        prog="quorum",
        description=DESCRIPTION,
        args=words or ["--help"],
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )
    try:
        command.run()
    except QuorumError as error:
        print(f"quorum: {error}", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, Interrupted) as stop:
        print(f"quorum: {str(stop) or 'interrupted.'}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        print("quorum: there is not enough memory for that: ask for less.", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
