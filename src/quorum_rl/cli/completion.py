"""`quorum completion`: scripts with which shells complete commands, flags and their values."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, get_args, get_origin

from quorum_rl.cli.parser import UNIVERSAL, Flag, Positional, flags_of

Shell = Literal["bash", "zsh", "fish"]
# `words` has the commands in the place of a command, and flags or values in their places; where it
# stays empty, the shell completes files.
BASH: Final = """\
_quorum() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" words=""
    local before="${{COMP_WORDS[*]:1:COMP_CWORD-1}}" last="${{COMP_WORDS[COMP_CWORD-1]}}"
    local command="${{COMP_WORDS[1]}}"
    case "$command" in {groups}) command="$command ${{COMP_WORDS[2]}}" ;; esac
    case "$before" in
{places}
    esac
    case "$command $last" in
{values}
        *) [[ "$current" == -* ]] && case "$command" in
{flags}
        esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _quorum quorum
"""
ZSH: Final = "autoload -U +X compinit bashcompinit\ncompinit\nbashcompinit\n"
FISH: Final = """\
function __quorum_at
    set -l words (commandline -opc)
    test "$words[2..]" = "$argv"
end
function __quorum_in
    set -l words (commandline -opc)
    string match -q -- "$argv *" "$words[2..] "
end
"""


@dataclass(frozen=True)
class Completion:
    """Print a script that lets a shell complete commands, flags and the values they may have.

    Example: quorum completion bash > ~/.local/share/bash-completion/completions/quorum
    """

    shell: Annotated[Shell, Positional("SHELL")]
    """Which shell: bash, zsh or fish."""

    def run(self) -> None:
        if self.shell == "fish":
            print(_fish(), end="")
        else:
            print((ZSH if self.shell == "zsh" else "") + _bash(), end="")


def _places() -> dict[str, list[str]]:
    """What may follow the words of an unfinished command."""
    from quorum_rl.cli.main import COMMANDS

    groups = {name: list(inner) for name, (_, inner) in COMMANDS.items() if inner}
    return {"": list(COMMANDS), **groups, "completion": list(get_args(Shell))}


def _flags() -> dict[str, list[Flag]]:
    """The flags of every command."""
    from quorum_rl.cli.main import load, paths

    return {
        " ".join(path): [flag for flag in flags_of(load(path)) if flag.is_word and not flag.metavar]
        for path in paths()
    }


def _spellings(flags: list[Flag]) -> list[str]:
    """The ways to write these flags, and those that every command has."""
    found = []
    for flag in flags:
        if flag.kind is not bool or flag.optional or not flag.default:
            found.append(f"--{flag.name}")
        if flag.kind is bool and (flag.optional or flag.default):
            found.append(f"--no-{flag.name}")
    return [*found, *UNIVERSAL]


def _values() -> dict[str, tuple[str, ...]]:
    """What may follow a flag of a command, where that is one of a few words."""
    return {
        f"{command} --{flag.name}": get_args(flag.kind)
        for command, flags in _flags().items()
        for flag in flags
        if get_origin(flag.kind) is Literal
    }


def _bash() -> str:
    def cases(indent: int, words_at: dict[str, list[str]] | dict[str, tuple[str, ...]]) -> str:
        return "\n".join(
            f'{" " * indent}"{place}") words="{" ".join(words)}" ;;'
            for place, words in words_at.items()
        )

    return BASH.format(
        groups="|".join(place for place in _places() if place not in ("", "completion")),
        places=cases(8, _places()),
        values=cases(8, _values()),
        flags=cases(12, {command: _spellings(flags) for command, flags in _flags().items()}),
    )


def _fish() -> str:
    lines = [
        f"complete -c quorum -f -n '__quorum_at {place}' -a '{' '.join(words)}'"
        for place, words in _places().items()
    ]
    values = _values()
    for command, flags in _flags().items():
        for spelling in _spellings(flags):
            words = " ".join(values.get(f"{command} {spelling}", ()))
            takes = f" -x -a '{words}'" if words else ""
            flag = spelling.removeprefix("--")
            lines.append(f"complete -c quorum -n '__quorum_in {command}' -l {flag}{takes}")
    return FISH + "\n".join(lines) + "\n"
