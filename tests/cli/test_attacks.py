"""Files that mean harm are refused in one sentence, before memory is taken or a charge made."""

import json
import os
import resource
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledger_files import BOTH, FLOOR, TRAINING, charge, ledger_of
from reported_runs import write_run

from quorum_rl.budget.record import START, line_of, read_lines
from quorum_rl.cli.main import main
from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.logs import Declared, from_episodes, save_demonstrations

Refused = Callable[..., str]

IMPORT = ("--actions", "2", "--observations", "1", "--horizon", "5", "--out", "never.arrow")


@pytest.fixture
def refused(quorum: Any) -> Refused:
    """Runs a command line that must be refused, and gives the sentence that says why."""
    said: Refused = quorum.refused
    return said


@pytest.fixture
def frugal() -> Any:
    """Whoever takes two GiB more than now gets a MemoryError."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + 2 * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@contextmanager
def in_seconds(most: int) -> Iterator[None]:
    def hangs(*_: Any) -> None:
        raise AssertionError(f"a file took longer than {most} seconds")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(most)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def rehashed(content: bytes, number: int, change: Callable[[dict[str, Any]], Any]) -> bytes:
    """The ledger with one entry changed and all hashes made anew, as anybody can."""
    entries = [dict(entry) for entry in read_lines(content, "").entries]
    change(entries[number])
    made, head = b"", START
    for entry in entries:
        made += line_of(entry, head)
        head = read_lines(made, "").head
    return made


def put(name: str, value: Any, *within: str) -> Callable[[dict[str, Any]], Any]:
    def change(entry: dict[str, Any]) -> None:
        for step in within:
            entry[step] = dict(entry[step])
            entry = entry[step]
        entry[name] = value

    return change


WRONG: dict[str, tuple[int, Callable[[dict[str, Any]], Any]]] = {
    "a budget in words": (0, put("epsilon", "fifty")),
    "no budget": (0, put("epsilon", None)),
    "a negative delta": (0, put("delta", -1)),
    "a list for an identity": (0, put("identity", ["ab"])),
    "a kind that is a list": (0, put("kind", ["production"])),
    "no relation": (0, lambda entry: entry.pop("relation")),
    "an event in words": (1, put("event", "free")),
    "an event's kind that is a list": (1, put("event", ["release"], "event")),
    "an event without constants": (1, put("event", {})),
    "a floor in words": (1, put("p_min", "0.02", "event")),
    "experts beyond counting": (1, put("experts", 10**200, "event")),
    "true experts": (1, put("experts", True, "event")),
    "a run that is a number": (1, put("run", 7)),
    "facts that are a list": (1, put("facts", [])),
    "a release without a pool": (1, put("facts", {})),
    "a pool that is an object": (1, put("pool", {}, "facts")),
    "no time": (1, lambda entry: entry.pop("at")),
    "fewer than no steps": (2, put("steps", -5, "event")),
    "noise that is no number": (2, put("noise_multiplier", None, "event")),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_a_rehashed_ledger_with_a_wrong_type_is_one_sentence(
    what: str, tmp_path: Path, refused: Refused
) -> None:
    path = tmp_path / "some.ledger"
    path.write_bytes(rehashed(ledger_of(*BOTH), *WRONG[what]))
    refused("ledger", "show", str(path), status=1)
    refused("certificate", "verify", str(path), status=1)


@pytest.mark.parametrize("digits", [50, 250, 400, 5000])
@pytest.mark.parametrize("name", ["experts", "horizon", "threshold", "epsilon", "query_epsilon"])
def test_a_huge_number_in_a_plan_is_one_sentence(
    planned: Path, tmp_path: Path, refused: Refused, name: str, digits: int
) -> None:
    facts = json.loads(planned.read_text()) | {name: -7}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(facts).replace(f'"{name}": -7', f'"{name}": 1{"0" * digits}'))
    ledger = tmp_path / "some.ledger"
    ledger.write_bytes(ledger_of())
    refused("release", "none.arrow", "none.safetensors", "--plan", str(plan), "--ledger",
            str(ledger), "--out", str(tmp_path / "out.parquet"))  # fmt: skip


def test_tables_that_are_not_utf8_are_one_sentence(tmp_path: Path, refused: Refused) -> None:
    header = "expert,episode,step,observation_0,action,reward,terminated"
    csv = tmp_path / "log.csv"
    for content in (f"{header}\n\xff,0,0,1,0,1,true\n", header.replace("expert", "\xfe\xff")):
        csv.write_bytes(content.encode("latin-1"))
        assert "log.csv" in refused("demos", "import", str(csv), *IMPORT)
    raw = pa.StringArray.from_buffers(
        1, pa.py_buffer(struct.pack("<ii", 0, 2)), pa.py_buffer(b"\xff\xfe")
    )
    parquet = tmp_path / "log.parquet"
    one = {"episode": [0], "step": [0], "observation_0": [1.0], "action": [0], "reward": [1.0]}
    pq.write_table(pa.table({"expert": raw, **one, "terminated": [True]}), parquet)
    assert "log.parquet" in refused("demos", "import", str(parquet), *IMPORT)


TAGS = ("[/red]", "[link=https://example.org]a[/link]", ":smile:", "<script>")


@pytest.mark.parametrize("text", TAGS)
def test_a_text_of_a_hostile_log_is_printed_as_it_stands(
    text: str, tmp_path: Path, quorum: Any
) -> None:
    """Rich takes words in brackets for tags of its own: some are errors, and some hide text."""
    named = Dictionary((Column(text, unit=text),), (text, "other"))
    declared = Declared(2, 1, horizon=1, world=text, smoothing=text, dictionary=named)
    log = from_episodes(declared, expert=[0], length=[1], observations=[[0.0], [0.0]], actions=[0],
                        rewards=[0.0], terminated=[True], truncated=[False])  # fmt: skip
    save_demonstrations(log, tmp_path / "log.arrow")
    said = quorum("demos", "show", tmp_path / "log.arrow")
    assert said.count(text) == 5


def test_names_in_a_file_do_not_move_the_terminal(tmp_path: Path, refused: Refused) -> None:
    """Here the header of a table, which an error lists: it would clear the screen, and say more."""
    header = HEADER.replace("expert", "\x1b[2Jimported: 400 experts\x1b[8m\u202e")
    (tmp_path / "log.csv").write_text(f"{header}\n", encoding="utf-8")
    said = refused("demos", "import", str(tmp_path / "log.csv"), *IMPORT)
    assert "choose one of \\x1b[2Jimported: 400 experts\\x1b[8m\\u202e, action" in said
    assert said.rstrip("\n").isprintable()


def test_what_is_printed_does_not_move_the_terminal(quorum: Any, tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2J.ledger"
    assert "\\x1b[2J.ledger" in quorum("ledger", "create", path, "--research")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_terabyte(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**40)  # of nothing, so it takes no room


@pytest.mark.usefixtures("frugal")
@pytest.mark.parametrize("endless", [a_pipe, a_device, a_terabyte])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("some.ledger", ("ledger", "show")),
        ("some.ledger", ("certificate", "show")),
        ("run/certificate.json", ("certificate", "verify")),
        ("run/ledger.jsonl", ("certificate", "verify")),
        ("run/config.json", ("report",)),
        ("run/config.toml", ("report",)),
        ("run/metrics.jsonl", ("report",)),
        ("run/ledger.jsonl", ("report",)),
    ],
)
def test_a_file_without_end_keeps_nobody_waiting(
    endless: Callable[[Path], None],
    name: str,
    words: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As an archive may hold them: a pipe waits for its writer, and a device never stops."""
    write_run(tmp_path / "run")
    path = tmp_path / name
    path.unlink(missing_ok=True)
    endless(path)
    asked = path.parent if path.parent.name == "run" else path
    with in_seconds(10), pytest.raises(SystemExit) as stopped:
        main([*words, str(asked)])
    assert stopped.value.code in (1, 2)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("name", ["world", "smoothing", "machine", "identity", "experts_identity"])
@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\u202eab", "x" * 300, ""])
def test_a_text_that_moves_the_terminal_is_not_declared(name: str, text: str) -> None:
    with pytest.raises(QuorumError, match=f"the declared {name} is .*: give a text of one line"):
        Declared(2, 1, horizon=1, **{name: text})  # type: ignore[arg-type]


HEADER = "expert,episode,step,observation_0,action,reward,terminated"
EMPTY = {
    b"": "has no header",
    b"\xef\xbb\xbf": "has no header",
    b"\n\n": "has no header",
    b"  \r": "has no header",
    HEADER.encode(): "there is no row",
    HEADER.encode() + b"\n": "there is no row",
    HEADER.encode("utf-16"): "is no text in UTF-8",
    b"exp\xe9rt,episode\n": "is no text in UTF-8",
}


@pytest.mark.parametrize("content", EMPTY)
def test_a_csv_without_rows_or_in_another_encoding_is_one_sentence(
    content: bytes, tmp_path: Path, refused: Refused
) -> None:
    csv, said = tmp_path / "log.csv", EMPTY[content]
    csv.write_bytes(content)
    assert said in refused("demos", "import", str(csv), *IMPORT)
    if said != "there is no row":
        sketch = ("--sketch", str(tmp_path / "columns.toml"))
        assert said in refused("demos", "import", str(csv), *sketch)
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]


@pytest.mark.usefixtures("frugal")
def test_a_small_parquet_that_declares_too_much_is_refused_by_what_it_declares(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows = tmp_path / "bomb.parquet", 1_000_000
    group = pa.table({name: pa.array(np.zeros(rows)) for name in
                      ("expert", "episode", "step", "observation_0", "action", "reward",
                       "terminated")})  # fmt: skip
    with pq.ParquetWriter(path, group.schema) as writer:
        for _ in range(120):
            writer.write_table(group, row_group_size=rows)
    assert path.stat().st_size < 5_000_000
    said = refused("demos", "import", str(path), *IMPORT)
    assert "says that it holds 6.3 GiB" in said
    assert "QUORUM_MEMORY_GIB" in said
    monkeypatch.setenv("QUORUM_MEMORY_GIB", "much")
    assert "give a number of GiB" in refused("demos", "import", str(path), *IMPORT)


@pytest.mark.usefixtures("frugal")
def test_lists_that_grow_too_long_are_refused_while_they_are_read(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of many numbers is one row, so the number of rows says nothing about it."""
    path = tmp_path / "lists.parquet"
    lists = pa.ListArray.from_arrays(pa.array([0, 4_000_000], pa.int32()), np.zeros(4_000_000))
    one = {name: [0] for name in ("expert", "episode", "step", "action", "reward", "terminated")}
    pq.write_table(pa.table({**one, "observation": lists}), path)
    monkeypatch.setenv("QUORUM_MEMORY_GIB", "0.01")
    assert "says that it holds" in refused("demos", "import", str(path), *IMPORT)


@pytest.mark.usefixtures("frugal")
def test_a_header_that_declares_three_gigabytes_is_not_read(
    tmp_path: Path, refused: Refused
) -> None:
    path = tmp_path / "bomb.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 3 * 2**30))
        file.truncate(3 * 2**30 + 8)  # a hole: it takes no room on the disk
    assert "its header would have 3,221,225,472 bytes" in refused("experts", "show", str(path))


def test_the_floor_of_a_log_cannot_be_raised_before_a_release(
    collected: Path, experts_file: Path, planned: Path, tmp_path: Path, refused: Refused
) -> None:
    """The attack that passed: one digit of p_min, on a production ledger."""
    log, ledger = tmp_path / "log.arrow", tmp_path / "experts.ledger"
    log.write_bytes(collected.read_bytes().replace(b'"p_min": 0.1,', b'"p_min": 0.3,'))
    main(["ledger", "create", str(ledger), "--epsilon", "30", "--delta", "1e-3"])
    before = ledger.read_bytes()
    said = refused("release", str(log), str(experts_file), "--plan", str(planned), "--ledger",
                   str(ledger), "--out", str(tmp_path / "out.parquet"), "--accept",
                   "one-expert-each")  # fmt: skip
    assert "declares was changed after Quorum wrote it" in said
    assert ledger.read_bytes() == before


def test_a_rehashed_ledger_of_right_types_is_read() -> None:
    """The change above is what is refused, not the writing anew."""
    content = ledger_of(charge(FLOOR, 1), charge(TRAINING, 1))
    assert rehashed(content, 1, lambda _: None) == content
