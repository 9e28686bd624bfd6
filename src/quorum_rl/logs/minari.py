"""Demonstrations in and out of Minari 0.5, the expert in the metadata of each episode.

Minari stores n + 1 observations and n actions an episode, as we do. It is slow at many episodes
(about 2 ms each): a way in and out, not a place to work from.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.files import flush_folder
from quorum_rl.logs.assemble import (
    as_actions,
    as_floats,
    check_finite,
    check_truncations,
    continuous_actions,
    from_episodes,
)
from quorum_rl.logs.columns import worth_keeping
from quorum_rl.logs.declared import (
    METADATA_KEY,
    Declared,
    declared_from_json,
    declared_to_json,
    settled,
)
from quorum_rl.logs.demonstrations import Columns, Demonstrations
from quorum_rl.logs.digest import DIGEST_KEY, check_columns, check_said, digests_of
from quorum_rl.logs.names import NAMES_KEY, names_from_json, names_to_json, numbered


def read_minari(
    dataset_id: str, declared: Declared | None = None, *, expert_key: str = "expert"
) -> Demonstrations:
    """Import a Minari dataset that is on this machine.

    The expert of an episode is the entry `expert_key` of its metadata, an integer or a string
    (strings are names, numbered in their sorted order). A dataset that `write_minari` made is
    compared with the digest that it carries, and `declared` may be left out for it; if it is given,
    it must not contradict what the dataset says. Arrays and dictionaries of them are flattened;
    their shapes are in the `dictionary` of what is declared.

    Raises:
        QuorumError: naming the dataset, the episode and the fix.
    """
    dataset = _opened(dataset_id)
    said, where = _said(dataset), f"Minari dataset {dataset.id!r}"
    known = settled(declared, said.get(METADATA_KEY), where)
    seen = _columns(dataset, known.dictionary)
    _check_spaces(dataset, seen, known)
    if worth_keeping(seen) or known.dictionary is not None:
        named = replace(known.dictionary or Dictionary(), columns=seen)
        known = replace(known, dictionary=named)
    about = list(dataset.storage.get_episode_metadata(dataset.episode_indices))
    experts, names = _experts(dataset, about, expert_key)
    pairs = zip(about, dataset.iterate_episodes(), strict=True)
    episodes = [_checked(dataset, episode, metadata, known) for metadata, episode in pairs]

    def made(declared: Declared) -> Demonstrations:
        return from_episodes(
            declared,
            expert=experts,
            length=[len(episode.rewards) for episode in episodes],
            observations=np.concatenate([_flat(episode.observations) for episode in episodes]),
            actions=np.concatenate([episode.actions for episode in episodes]),
            rewards=np.concatenate([episode.rewards for episode in episodes]),
            terminated=[bool(episode.terminations[-1]) for episode in episodes],
            truncated=[bool(episode.truncations[-1]) for episode in episodes],
        )

    if METADATA_KEY in said:
        # Without what its reader adds, such as ranges that values are cut to.
        written = made(declared_from_json(said[METADATA_KEY])).compacted()
        try:
            check_columns(written, said[DIGEST_KEY], values=True)
        except QuorumError as error:
            raise QuorumError(f"{where}: {error}") from error
        names = names_from_json(said.get(NAMES_KEY, b"[]"))
    return replace(made(known), expert_names=names)


def _said(dataset: Any) -> dict[bytes, bytes]:
    """What a dataset that Quorum wrote says of itself, with its digest, by which it is checked."""
    metadata = dataset.storage.metadata
    said = {
        key: str(metadata[key.decode()]).encode("utf-8", "surrogatepass")
        for key in (METADATA_KEY, NAMES_KEY, DIGEST_KEY)
        if key.decode() in metadata
    }
    if METADATA_KEY in said:
        facts = {key: text for key, text in said.items() if key != DIGEST_KEY}
        check_said(facts, said.get(DIGEST_KEY), f"Minari dataset {dataset.id}")
    return said


def minari_columns(dataset_id: str) -> tuple[Column, ...]:
    """The columns of an observation as the dataset's space says; no episode is read.

    Raises:
        QuorumError: if there is no such dataset, or its observations are no numbers.
    """
    return _columns(_opened(dataset_id), None)


def write_minari(demonstrations: Demonstrations, dataset_id: str) -> None:
    """Export to the Minari datasets of this machine (`MINARI_DATASETS_PATH`), stored as HDF5.

    The dataset appears under its name only when it is complete. It holds the sensitive data.

    Raises:
        QuorumError: if the name is taken or not one that Minari allows.
    """
    minari = _minari()
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.storage import get_dataset_path

    try:
        parse_dataset_id(dataset_id)
    except (ValueError, TypeError) as error:
        raise QuorumError(
            f"Minari does not allow the name {dataset_id!r}: use letters, digits, - and _ and a "
            "version, such as cartpole/experts-v0."
        ) from error
    target = Path(get_dataset_path(dataset_id))
    if target.exists():
        raise QuorumError(f"Minari dataset {dataset_id!r} exists: delete it or raise the version.")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix="."))  # Minari skips dotted names
    try:
        _write_storage(minari, demonstrations, dataset_id, temporary / "data")
        os.rename(temporary, target)  # noqa: PTH104 (fails on a name taken meanwhile)
        flush_folder(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    _name_namespace(dataset_id)


def _write_storage(
    minari: Any, demonstrations: Demonstrations, dataset_id: str, path: Path
) -> None:
    from gymnasium.spaces import Box, Discrete
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    declared = demonstrations.declared
    said = {
        METADATA_KEY: declared_to_json(declared),
        NAMES_KEY: names_to_json(demonstrations.expert_names),
    }
    digests = digests_of(said, _as_read(demonstrations))
    storage = MinariStorage.new(
        path,
        observation_space=Box(-np.inf, np.inf, (declared.observation_size,), np.float32),
        action_space=Box(*np.asarray(declared.action_bounds, np.float32).T, dtype=np.float32)
        if declared.continuous
        else Discrete(declared.action_count),
    )
    storage.update_metadata(
        {
            "dataset_id": dataset_id,
            "minari_version": minari.__version__,
            **{key.decode(): text.decode() for key, text in (said | {DIGEST_KEY: digests}).items()},
        }
    )
    storage.update_episodes(
        EpisodeBuffer(
            observations=episode.observations,  # type: ignore[arg-type, unused-ignore]
            actions=episode.actions.astype(np.float32 if declared.continuous else np.int64),  # type: ignore[arg-type, unused-ignore]
            rewards=episode.rewards,  # type: ignore[arg-type, unused-ignore]
            terminations=_at_end(len(episode.actions), episode.terminated),
            truncations=_at_end(len(episode.actions), episode.truncated),
        )
        for episode in demonstrations
    )
    storage.update_episode_metadata(
        {"expert": int(expert)} for expert in demonstrations.episodes.expert
    )


def _as_read(demonstrations: Demonstrations) -> Demonstrations:
    """The demonstrations with the types and ranges with which a reader finds them."""
    whole, declared = demonstrations.compacted(), demonstrations.declared
    columns = Columns(
        declared.prepared(whole.columns.observations),
        as_actions(whole.columns.actions, declared, "step {}".format),
        as_floats(whole.columns.rewards),
    )
    return replace(whole, columns=columns)


def _at_end(length: int, flag: bool) -> Any:
    flags = np.zeros(length, dtype=np.bool_)
    flags[-1] = flag
    return flags


def _name_namespace(dataset_id: str) -> None:
    """Register the part before the last slash, as Minari does for its own datasets."""
    from minari.namespace import create_namespace, list_local_namespaces

    namespace = dataset_id.rpartition("/")[0]
    if namespace and namespace not in list_local_namespaces():
        create_namespace(namespace)


def _minari() -> Any:
    try:
        import minari
        import minari.dataset._storages.hdf5_storage  # needs h5py and pillow, which it leaves out
    except ImportError as error:
        raise QuorumError(
            f"Minari is not installed ({error}): pip install 'quorum-rl[minari]'."
        ) from error
    return minari


def _opened(dataset_id: str) -> Any:
    minari = _minari()
    try:
        return minari.load_dataset(dataset_id)
    except (FileNotFoundError, ValueError) as error:
        raise QuorumError(f"Minari dataset {dataset_id!r} cannot be read: {error}") from error


def _columns(dataset: Any, named: Dictionary | None) -> tuple[Column, ...]:
    """The columns that somebody named, or those of the dataset's space."""
    if named is not None and named.columns:
        return named.columns
    return tuple(_of_space(dataset, dataset.observation_space, ""))


def _of_space(dataset: Any, space: Any, name: str) -> Iterator[Column]:
    from gymnasium.spaces import Box, Dict

    if isinstance(space, Dict):
        for key, inner in space.spaces.items():
            yield from _of_space(dataset, inner, f"{name}.{key}" if name else str(key))
    elif isinstance(space, Box):
        yield Column(name or "observation", shape=tuple(map(int, space.shape)))
    else:
        raise QuorumError(
            f"Minari dataset {dataset.id!r} observes {space}: make boxes of numbers, or a "
            "dictionary of them."
        )


def _flat(observations: Any) -> Any:
    """Arrays, or a dictionary of them, as one row a state."""
    if isinstance(observations, Mapping):
        return np.concatenate([_flat(part) for part in observations.values()], axis=1)
    values = np.asarray(observations)
    return values.reshape(len(values), -1)


def _check_spaces(dataset: Any, seen: Sequence[Column], declared: Declared) -> None:
    from gymnasium.spaces import Box, Discrete

    size = Dictionary(tuple(_of_space(dataset, dataset.observation_space, ""))).size
    if {size, Dictionary(tuple(seen)).size} != {declared.observation_size}:
        raise QuorumError(
            f"Minari dataset {dataset.id!r} observes {dataset.observation_space}, but vectors of "
            f"{declared.observation_size} numbers were declared: correct observation_size."
        )
    done = dataset.action_space
    if isinstance(done, Box) and declared.continuous and done.shape == (declared.action_count,):
        return
    if isinstance(done, Box):
        raise continuous_actions(f"Minari dataset {dataset.id!r}", f"it has the actions {done}")
    if not isinstance(done, Discrete) or (done.n, done.start) != (declared.action_count, 0):
        raise QuorumError(
            f"Minari dataset {dataset.id!r} has the actions {done}, but the whole numbers 0 to "
            f"{declared.action_count - 1} were declared: correct action_count or the dataset."
        )


def _experts(
    dataset: Any, about: Sequence[Mapping[str, Any]], key: str
) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    """Whose each episode is, as numbers, and the names of these where they are no numbers."""
    for number, metadata in enumerate(about):
        if key not in metadata:
            raise QuorumError(
                f"Minari dataset {dataset.id!r}, episode {number}: its metadata has no {key!r}: "
                "write the expert there with update_episode_metadata, or give another expert_key."
            )
    names = [metadata[key] for metadata in about]
    if not names:
        raise QuorumError(f"Minari dataset {dataset.id!r} has no episode: give at least one.")
    if all(isinstance(name, int | np.integer) for name in names):
        return np.array(names, dtype=np.int64), ()
    return numbered([str(name) for name in names])


def _checked(dataset: Any, episode: Any, metadata: Mapping[str, Any], declared: Declared) -> Any:
    """The episode, if it is whole and as long as its own metadata says.

    Minari's Arrow reader pairs files with episode numbers by position: a long episode that comes in
    two parts would shift all that follow.
    """

    def place(row: int) -> str:
        return f"Minari dataset {dataset.id!r}, episode {episode.id}, step {row}"

    length = len(episode.rewards)
    if int(metadata["total_steps"]) != length:
        raise QuorumError(
            f"Minari dataset {dataset.id!r}, episode {episode.id}: {length} steps were read, its "
            f"metadata says {metadata['total_steps']}: store it as HDF5."
        )
    states = _flat(episode.observations)
    if length == 0 or len(episode.actions) != length or len(states) != length + 1:
        raise QuorumError(
            f"{place(0)}: {length} rewards, {len(episode.actions)} actions and "
            f"{len(states)} observations: an episode of n steps has n, n and n + 1."
        )
    check_finite(declared.prepared(states), "the observation", place, declared.dictionary)
    check_finite(as_floats(episode.rewards), "the reward", place)
    as_actions(episode.actions, declared, place)
    ended = np.asarray(episode.terminations, np.bool_) | np.asarray(episode.truncations, np.bool_)
    if not ended[-1]:
        raise QuorumError(
            f"{place(length - 1)}: the episode stops here neither terminated nor truncated: leave "
            "out logs that were cut short, since their end would tell on the expert."
        )
    if ended[:-1].any():
        raise QuorumError(
            f"{place(int(np.flatnonzero(ended)[0]) + 1)}: this step follows the end of its "
            "episode: split the episode or correct the flag."
        )
    check_truncations(
        declared,
        np.array([length]),
        np.asarray(episode.terminations[-1:], np.bool_),
        np.asarray(episode.truncations[-1:], np.bool_),
        lambda _: place(length - 1),
    )
    return episode
