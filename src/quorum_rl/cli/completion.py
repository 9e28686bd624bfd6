"""`quorum completion`: scripts with which shells complete commands, flags and their values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal, get_args, get_origin

from quorum_rl.cli.parser import UNIVERSAL, Positional, flags_of

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


def _places() -> dict[str, Sequence[str]]:
    """What may follow the words of an unfinished command."""
    from quorum_rl.cli.main import COMMANDS

    groups = {name: inner for name, (_, inner) in COMMANDS.items() if inner}
    return {"": list(COMMANDS), **groups, "completion": get_args(Shell)}


def _flags() -> dict[str, dict[str, tuple[str, ...]]]:
    """The flags of every command, as they are written, and the few words that may follow each."""
    from quorum_rl.cli.main import load, paths

    return {
        " ".join(path): {
            spelling: get_args(flag.kind) if get_origin(flag.kind) is Literal else ()
            for flag in flags_of(load(path))
            if flag.is_word and not flag.metavar
            for spelling in flag.spellings
        }
        | dict.fromkeys(UNIVERSAL, ())
        for path in paths()
    }


def _bash() -> str:
    def cases(indent: int, words_at: Mapping[str, Iterable[str]]) -> str:
        return "\n".join(
            f'{" " * indent}"{place}") words="{" ".join(words)}" ;;'
            for place, words in words_at.items()
        )

    values = {
        f"{command} {flag}": words
        for command, flags in _flags().items()
        for flag, words in flags.items()
        if words
    }
    return BASH.format(
        groups="|".join(place for place in _places() if place not in ("", "completion")),
        places=cases(8, _places()),
        values=cases(8, values),
        flags=cases(12, _flags()),
    )


def _fish() -> str:
    lines = [
        f"complete -c quorum -f -n '__quorum_at {place}' -a '{' '.join(words)}'"
        for place, words in _places().items()
    ]
    for command, flags in _flags().items():
        for flag, words in flags.items():
            takes = f" -x -a '{' '.join(words)}'" if words else ""
            name = flag.removeprefix("--")
            lines.append(f"complete -c quorum -n '__quorum_in {command}' -l {name}{takes}")
    return FISH + "\n".join(lines) + "\n"
