"""The folder of a run: what may be shown, and apart from it what may not.

`private/` holds what makes an interrupted run go on bit by bit: the noise's key and the state of
training. It is readable by its owner only, and deleted when the run is complete.
"""

import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.budget import (
    Certificate,
    Entropy,
    Ledger,
    are_words,
    jax_key_data,
    secret_words,
)
from quorum_rl.errors import QuorumError
from quorum_rl.files import flush_folder, replacing, write_json
from quorum_rl.json_files import read_config, read_object
from quorum_rl.logs import Episodes
from quorum_rl.tensors import map_tensors, numbered_leaves, refusing_damage, write_tensors
from quorum_rl.training import TrainState

ANEW: Final = "delete the folder and start anew"
KEY: Final = "quorum_rl.training"
CONTENTS: Final = "contents"  # of what a run reads, beside its keys
SPARE_BYTES: Final = 8 * 2**20  # for everything small
BEFORE_TRAINING: Final = (
    "config.json",
    "config.toml",
    "ledger.jsonl",
    "ledger.jsonl.split-key",
    "released.parquet",
)


class RunFolder:
    """A run's folder, which is made with its `private/` if it is not there.

    Raises:
        QuorumError: if the folder cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ledger = path / "ledger.jsonl"
        self.released = path / "released.parquet"
        self.policy = path / "policy.safetensors"
        self.metrics = path / "metrics.jsonl"
        self.winner = path / "winner"  # of a sweep: its policy, and often its ledger
        self.private = path / "private"
        self._keys = self.private / "keys.json"
        self.remaining = self.private / "remaining.npz"  # episodes that a release left
        self.state = self.private / "standing.safetensors"  # as interrupted runs know it
        if path.exists() and not path.is_dir():
            raise QuorumError(f"{str(path)!r} is a file: choose another folder.")
        self._made = [folder for folder in (path, *path.parents) if not folder.exists()]
        self._found = {entry.name for entry in path.iterdir()} if path.exists() else set[str]()
        try:
            path.mkdir(parents=True, exist_ok=True)
            self.private.mkdir(mode=0o700, exist_ok=True)
            for folder in self._made:
                flush_folder(folder.parent)
        except OSError as error:
            raise QuorumError(f"{str(path)!r} cannot be made: {error.strerror}.") from error

    def settle(self, configuration: dict[str, Any]) -> None:
        """Write down what is run here, or check that it is what was begun here.

        Raises:
            QuorumError: if another run was begun here, naming the first difference.
        """
        wanted = json.loads(json.dumps(configuration, default=str))
        if not (self.path / "config.json").exists():
            self.write_json("config.json", wanted)
            return
        before, wanted = _flat(read_config(self.path)), _flat(wanted)
        for name in sorted(before.keys() | wanted.keys()):
            if before.get(name) != wanted.get(name):
                raise QuorumError(
                    f"{str(self.path)!r} was begun with {name} = {before.get(name)}, not "
                    f"{wanted.get(name)}: go on with that, or choose another folder."
                )

    def check_room(self, needed: int) -> None:
        """Fail if results of so many bytes could not be written: a charge cannot be taken back.

        Raises:
            QuorumError: without naming what is needed, which is private.
        """
        free = shutil.disk_usage(self.path).free
        if free < needed + SPARE_BYTES:
            raise QuorumError(
                f"only {free / 2**20:.1f} MiB are free in {str(self.path)!r}, which is too little "
                "for this run: make room, or choose another folder; nothing was charged."
            )

    def write_json(self, name: str, facts: Any) -> None:
        """Write facts that may be shown."""
        write_json(self.path / name, facts)

    def write(self, name: str, text: str) -> None:
        with replacing(self.path / name) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def keys(self, entropy: Entropy) -> dict[str, list[int]]:
        """The words of the run's keys, and of the salt of their hash: as kept, or drawn.

        Raises:
            QuorumError: if they were drawn from another seed.
        """
        drawn = {name: jax_key_data(entropy, name).tolist() for name in ("noise", "public")}
        drawn["release"] = secret_words(entropy, "secret of the release")
        drawn["salt"] = secret_words(entropy, "salt of the keys")
        if not self._keys.exists():
            return drawn
        with refusing_damage(f"{str(self._keys)!r} is damaged", fix=ANEW):
            kept = read_object(self._keys)
            keys: dict[str, list[int]] = {name: kept.get(name, drawn[name]) for name in drawn}
            if not all(are_words(keys[name], len(words)) for name, words in drawn.items()):
                raise ValueError("it holds no keys")
        if entropy.reproducible and keys != drawn:
            raise QuorumError(
                f"{str(self.path)!r} was begun with another seed: go on with that, or choose "
                "another folder."
            )
        return keys

    def keep_keys(
        self, keys: dict[str, list[int]], contents: Mapping[str, str] | None = None
    ) -> None:
        """Keep the keys until the run is complete, and beside them digests of what it reads."""
        write_json(self._keys, keys | {CONTENTS: dict(contents or {})})

    def kept_contents(self) -> dict[str, str]:
        """The digests of what the run read before it was interrupted, if they were kept."""
        if not self._keys.exists():
            return {}
        with refusing_damage(f"{str(self._keys)!r} is damaged", fix=ANEW):
            return dict(read_object(self._keys).get(CONTENTS, {}))

    def name(self) -> str:
        """What ledgers call this run: random whatever the keys are, and kept as long as they.

        Two runs with one seed must have two names, or the second would seem paid for.
        """
        path = self.private / "name"
        if not path.exists():
            with replacing(path) as temporary:
                temporary.write_text(f"fit-{secrets.token_hex(8)}")
        return path.read_text(errors="replace")

    def save_remaining(self, episodes: Episodes) -> None:
        with replacing(self.remaining) as temporary:
            np.savez(temporary, **episodes._asdict())

    def read_remaining(self) -> Episodes:
        with (
            refusing_damage(f"{str(self.remaining)!r} is damaged", fix=ANEW),
            np.load(self.remaining) as columns,
        ):
            return Episodes(**{name: columns[name] for name in Episodes._fields})

    def save(self, state: TrainState) -> None:
        """Keep the state of training, in place of the one before."""
        write_tensors(numbered_leaves(jax.tree.leaves(state)), self.state, {KEY: "standing"})

    def resumed(self, fresh: TrainState) -> TrainState:
        """The state of training when it was interrupted, or `fresh`.

        Raises:
            QuorumError: if what was kept is damaged.
        """
        if not self.state.exists():
            return fresh
        tensors, _ = map_tensors(self.state)
        wanted, structure = jax.tree.flatten(fresh)
        kept = [tensors.get(str(number)) for number in range(len(wanted))]
        for leaf, like in zip(kept, wanted, strict=True):
            if leaf is None or leaf.shape != like.shape or leaf.dtype != like.dtype:
                raise QuorumError(
                    f"{str(self.state)!r} is damaged: delete the folder and start anew."
                )
        # Copies: training takes its arrays over, and these are the file.
        state: TrainState = jax.tree.unflatten(structure, [jnp.array(leaf) for leaf in kept])
        return state

    def finish(self) -> None:
        """Delete what was secret: nobody can take the noise off any more."""
        shutil.rmtree(self.private)

    @contextmanager
    def unless_refused(self, ledger: Path) -> Iterator[None]:
        """Leave the folder as it was found if the run is refused before it has paid anything.

        So whoever was refused can mend anything about the run and start it in the same folder.
        Whoever starts a run there meanwhile is refused, and takes away nothing.

        Raises:
            QuorumError: if another process is at work there.
        """
        with self._alone():
            made = {self.private.name} - self._found  # what others have made since stays theirs
            self._found = {entry.name for entry in self.path.iterdir()} - made
            try:
                yield
            except QuorumError:
                self._withdraw(ledger)
                raise

    @contextmanager
    def _alone(self) -> Iterator[None]:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with suppress(OSError):  # of a file system without locks
                self._lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise QuorumError(
                f"another process is at work in {str(self.path)!r}: wait until it ends, or choose "
                "another folder."
            ) from error

    def _withdraw(self, ledger: Path) -> None:
        begun = "config.json" in self._found or self.state.exists()
        if begun or self._has_paid(ledger):
            return
        for room in (self.private, self.winner):
            if room.name not in self._found:
                shutil.rmtree(room, ignore_errors=True)
        for name in BEFORE_TRAINING:
            if name not in self._found:
                (self.path / name).unlink(missing_ok=True)
        for folder in self._made:
            with suppress(OSError):  # somebody else's files are in it
                folder.rmdir()

    def _has_paid(self, ledger: Path) -> bool:
        """Whether the ledger holds a charge of this run, or cannot tell."""
        if not (ledger.exists() and (self.private / "name").exists()):
            return False
        try:
            with Ledger.open(ledger) as opened:
                record = opened.record
        except QuorumError:  # such as another process that is starting this very run
            return True
        return record.torn or any(charge.run == self.name() for charge in record.charges)


def write_certificate(folder: Path, made: Certificate | None) -> str | None:
    """Write a certificate, if there is one, and say its SHA-256, by which a policy names it."""
    if made is None:
        return None
    path = folder / "certificate.json"
    write_json(path, json.loads(made.to_json()))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _flat(facts: dict[str, Any], within: str = "") -> dict[str, Any]:
    """Every fact under one name, such as `settings.learning_rate`."""
    found: dict[str, Any] = {}
    for name, value in facts.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{within}{name}.")
        else:
            found[within + name] = value
    return found
