"""The `quorum` command: reads the command line, and turns user errors into one sentence.

Only light modules are imported here: a command's own module when it is named, JAX when it runs.
"""

import importlib
import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, make_dataclass, replace
from functools import reduce
from operator import or_
from typing import Annotated, Any, Final, Protocol, get_args, get_type_hints

import tyro

from quorum_rl import __version__
from quorum_rl.cli.configuration import read_table, with_defaults, without_config
from quorum_rl.errors import Interrupted, QuorumError, unknown_name

DESCRIPTION: Final = """Quorum learns one policy from the logged decisions of many experts, so that
nobody can tell from the policy whether any one expert took part.

In order: worlds, experts (who is protected), demos (what they did), ledger (what may be spent),
then fit, which plans, releases and trains; or plan, release and train one by one. Then evaluate,
report, certificate and publish. Start with 'quorum demo', then 'quorum fit --help'."""

# Where each command is, and what it is for; a group of commands is a class with a `command`.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "demo": ("demo:Demo", "The whole flow on an embedded default."),
    "worlds": ("worlds:Worlds", "The worlds: list them, draw an episode."),
    "experts": ("experts:Experts", "The experts, who are protected: train, show, returns."),
    "demos": ("demos:Demos", "What the experts did: collect, show, import, export, agreement."),
    "ledger": ("ledger:Ledgers", "The budget of a set of experts: create, show."),
    "plan": ("plan:Plan", "What a release would cost and give, from declared numbers alone."),
    "release": ("release:Release", "Stage 1: release the prefixes that a quorum agrees on."),
    "fit": ("fit:Fit", "Both stages: from demonstrations and experts to a policy."),
    "train": ("fit:Train", "Stage 2 alone: train after a release, or with noise everywhere."),
    "sweep": ("sweep:Sweep", "Many settings tried together, and the best of them accounted."),
    "evaluate": ("evaluate:Evaluate", "How good a finished policy is, which costs no privacy."),
    "report": ("report:Report", "A finished run as one page that needs no network."),
    "certificate": (
        "ledger:Certificates",
        "What a ledger certifies: show, verify, sign, keygen, schema.",
    ),
    "audit": ("audit:Audit", "Attack the guarantee: what was lost at least, beside the claim."),
    "publish": ("publish:Publish", "The bundle of a run that may leave the building."),
}
SAID_OF_CONFIG: Final = """Every setting may also come from the table [{table}] of a TOML file:
--config FILE. Flags outrank it."""


class Runnable(Protocol):
    """A command as the command line made it."""

    def run(self) -> None: ...


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command. Exit status: 0 done, 2 the user can mend it, 130 interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words == ["--version"]:
        print(f"quorum {__version__}")
        return
    try:
        command_of(words).run()
    except QuorumError as error:
        print(f"quorum: {error}", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, Interrupted) as stop:
        print(f"quorum: {str(stop) or 'interrupted.'}", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # whoever read the output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        where = "" if error.filename is None else f"{str(error.filename)!r}: "
        print(f"quorum: {where}{error.strerror or error}.", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        print("quorum: there is not enough memory for that: ask for less.", file=sys.stderr)
        sys.exit(2)


def command_of(words: Sequence[str]) -> Runnable:
    """The command that these words name, with its settings from flags, file and defaults.

    Raises:
        QuorumError: if there is no such command, or `--config` names a file that does not fit.
        SystemExit: after help was shown, or flags that make no sense.
    """
    words, file = without_config(words)
    if not words or words[0].startswith("-"):
        return _help(words or ["--help"])
    name, *rest = words
    if name not in COMMANDS:
        raise unknown_name("command", name, COMMANDS)
    command, path, known = _loaded(name), [name], [list(COMMANDS)]
    if inner := subcommands(command):
        if not rest or rest[0].startswith("-"):
            return _parsed(command, path, rest or ["--help"], {})
        if rest[0] not in inner:
            raise unknown_name(f"command of 'quorum {name}'", rest[0], inner)
        command, path, rest = inner[rest[0]], [name, rest[0]], rest[1:]
        known.append(list(inner))
    if file is None:
        return _parsed(command, path, rest, {})
    table = read_table(file, path, known)
    default = with_defaults(command, table, f"--config {str(file)!r}, [{'.'.join(path)}]")
    return _parsed(command, path, rest, vars(default))


def subcommands(group: Any) -> dict[str, Any]:
    """The commands of a group, by name; none if it is a command itself."""
    if [field.name for field in fields(group)] != ["command"]:
        return {}
    union = get_type_hints(group, include_extras=True)["command"]
    return {get_args(one)[1].name: get_args(one)[0] for one in get_args(union)}


def _parsed(
    command: Any, path: Sequence[str], words: Sequence[str], defaults: Mapping[str, Any]
) -> Runnable:
    """The command with what the words say, and `defaults` (all or none) for the rest."""
    # tyro would take a dictionary's default for all that may be named in it: joined afterwards.
    tables = {name: value for name, value in defaults.items() if isinstance(value, dict)}
    own = {**defaults, **{name: {} for name in tables}}
    described = inspect.getdoc(command) or ""
    if not subcommands(command):
        described += "\n\n" + SAID_OF_CONFIG.format(table=".".join(path))
    made: Any = tyro.cli(
        command,
        prog=" ".join(["quorum", *path]),
        description=described,
        args=words,
        default=command(**own) if own else None,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )
    joined: Runnable = replace(
        made, **{name: value | getattr(made, name) for name, value in tables.items()}
    )
    return joined


def _help(words: Sequence[str]) -> Runnable:
    """The list of commands, made without importing them."""
    stubs: list[Any] = [
        Annotated[make_dataclass(name, []), tyro.conf.subcommand(name, description=what)]
        for name, (_, what) in COMMANDS.items()
    ]
    made: Runnable = tyro.cli(
        reduce(or_, stubs), prog="quorum", description=DESCRIPTION, args=words
    )
    return made


def _loaded(name: str) -> Any:
    module, attribute = COMMANDS[name][0].split(":")
    return getattr(importlib.import_module(f"quorum_rl.cli.{module}"), attribute)


if __name__ == "__main__":
    main()
