"""The `quorum` command: reads the command line, and turns user errors into one sentence.

Only light modules are imported here: a command's own module when it is named, JAX when it runs.
"""

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn, Protocol

from quorum_rl import __version__
from quorum_rl.cli.configuration import check_no_code, read_table, values_of, without_config
from quorum_rl.cli.output import RefutedError, check_seed, drop_output, printable
from quorum_rl.cli.parser import parse
from quorum_rl.errors import Interrupted, QuorumError, unknown_name

HELP: Final = {"-h", "--help", "--help-all"}
DESCRIPTION: Final = """Quorum learns one policy from the logged decisions of many experts, so that
nobody can tell from the policy whether any one expert took part.

In order: worlds, experts (who is protected), demos (what they did), ledger (what may be spent),
then fit, which plans, releases and trains; or plan and release, and fit after it. Then evaluate,
report, certificate and publish. Start with 'quorum demo', then 'quorum fit --help'."""


# What each word is for, and the words that may follow it. A command is a class of the module that
# is called as its first word, and called as its last.
COMMANDS: Final[dict[str, tuple[str, tuple[str, ...]]]] = {
    "demo": ("The whole flow on an embedded default.", ()),
    "worlds": ("The worlds: list them, draw an episode.", ("list", "draw")),
    "experts": (
        "The experts, who are protected: train, show, returns.",
        ("train", "show", "returns"),
    ),
    "demos": (
        "What the experts did: collect, show, import, export, agreement.",
        ("collect", "show", "import", "export", "agreement"),
    ),
    "ledger": ("The budget of a set of experts: create, show.", ("create", "show")),
    "plan": (
        "What would be spent and gained, from declared numbers alone: fit, release.",
        ("fit", "release"),
    ),
    "release": ("Stage 1: release the prefixes that a quorum agrees on.", ()),
    "fit": ("Both stages: from demonstrations and experts to a policy.", ()),
    "site": (
        "Logs that stay at their own sites: start a site, fit from all of them.",
        ("start", "fit"),
    ),
    "sweep": ("Many settings tried together, and the best of them accounted.", ()),
    "evaluate": ("How good a finished policy is, which costs no privacy.", ()),
    "report": ("A finished run as one page that needs no network.", ()),
    "certificate": (
        "What a ledger certifies: show, verify, sign, keygen, schema.",
        ("show", "verify", "sign", "keygen", "schema"),
    ),
    "audit": ("Attack the guarantee: what was lost at least, beside the claim.", ()),
    "publish": ("The bundle of a run that may leave the building.", ()),
    "completion": ("A script with which a shell completes these words.", ()),
}


class Runnable(Protocol):
    """A command as the command line made it."""

    def run(self) -> None: ...


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command of `quorum`; exit as `answering` says."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    with answering("quorum"):
        if words == ["--version"]:
            print(f"quorum {__version__}")
        else:
            command_of(words).run()


def run_alone(command: type[Runnable], called: str, words: Sequence[str] | None = None) -> None:
    """Run a command that is a program by itself, with the same help and the same answers."""
    given = list(sys.argv[1:] if words is None else words)
    with answering(called):
        _show_help(command, called, given)
        parse(command, given, called=called).run()


@contextmanager
def answering(called: str) -> Iterator[None]:
    """Answer errors in this block with one sentence, and end the process.

    Exit status: 0 done, 1 what was checked is wrong, 2 the user can mend it, 130 interrupted.
    """

    def stop(sentence: str, status: int) -> NoReturn:
        print(printable(f"{called}: {sentence}"), file=sys.stderr)
        sys.exit(status)

    try:
        yield
        sys.stdout.flush()  # here, where a reader who left is no error
    except QuorumError as error:
        stop(str(error), 1 if isinstance(error, RefutedError) else 2)
    except (KeyboardInterrupt, Interrupted) as interrupt:
        stop(str(interrupt) or "interrupted.", 130)
    except BrokenPipeError:  # whoever read the output has seen enough
        drop_output()
    except OSError as error:
        where = "" if error.filename is None else f"{str(error.filename)!r}: "
        stop(f"{where}{error.strerror or error}.", 2)
    except Exception as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        stop("there is not enough memory for that: ask for less.", 2)


def command_of(words: Sequence[str]) -> Runnable:
    """The command that these words name, with its settings from flags, file and defaults.

    Raises:
        QuorumError: if there is no such command or flag, or a value does not fit.
        SystemExit: after help was shown.
    """
    rest, file = without_config(words)
    path: list[str] = []
    known: list[Sequence[str]] = []
    names: Sequence[str] = list(COMMANDS)
    while names:
        called = " ".join(["quorum", *path])
        if not rest or rest[0].startswith("-"):
            raise _overview(called, path, names, rest)
        if rest[0] not in names:
            raise _unknown(rest[0], called if path else None, names)
        path.append(rest.pop(0))
        known.append(names)
        names = COMMANDS[path[0]][1] if len(path) == 1 else ()
    command, called, table = load(path), " ".join(["quorum", *path]), ".".join(path)
    _show_help(command, called, rest, table)
    values = {}
    if file is not None:
        where = f"--config {str(file)!r}, [{table}]"
        values = values_of(command, read_table(file, path, known), where)
    made: Runnable = parse(command, rest, values, called)
    for seed in ("seed", "first_seed"):
        check_seed(getattr(made, seed, None))
    if file is not None:
        check_no_code(made, rest)
    return made


def _unknown(word: str, called: str | None, names: Sequence[str]) -> QuorumError:
    """The error for a word that is no command, perhaps because its first word was left out."""
    whole = [f"{name} {word}" for name, (_, inner) in COMMANDS.items() if word in inner]
    if called is None and whole:
        hint = " or ".join(whole)
        return QuorumError(f"unknown command {word!r} (did you mean {hint}?): see 'quorum --help'.")
    return unknown_name("command" if called is None else f"command of '{called}'", word, names)


def paths() -> list[tuple[str, ...]]:
    """Every command, as the words that name it."""
    found: list[tuple[str, ...]] = []
    for name, (_, inner) in COMMANDS.items():
        found += [(name, word) for word in inner] or [(name,)]
    return found


def load(path: Sequence[str]) -> Any:
    """The class of a command."""
    module = importlib.import_module(f"quorum_rl.cli.{path[0]}")
    return getattr(module, path[-1].capitalize())


def _show_help(command: Any, called: str, words: Sequence[str], table: str | None = None) -> None:
    """Shows the help of a command, if the words ask for it."""
    if HELP & set(words):
        from quorum_rl.cli.help import page

        raise _shown(page(command, called, everything="--help-all" in words, table=table))


def _overview(
    called: str, path: Sequence[str], names: Sequence[str], words: Sequence[str]
) -> SystemExit:
    """Shows what commands there are."""
    unknown = [word for word in words if word not in HELP]
    if unknown:
        raise QuorumError(
            f"unknown flag {unknown[0]}: name a command first, see '{called} --help'."
        )
    from quorum_rl.cli.help import overview, summary

    description = COMMANDS[path[0]][0] if path else DESCRIPTION
    commands = {name: summary(load([*path, name])) if path else COMMANDS[name][0] for name in names}
    return _shown(overview(called, description, commands))


def _shown(page: str) -> SystemExit:
    print(page, end="")
    sys.stdout.flush()
    return SystemExit(0)


if __name__ == "__main__":
    main()
