"""One good file of every kind that Quorum reads, with its reader and how it is changed."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import jax
import numpy as np
from fits import crowd
from ledger_files import ACCEPTED, DELTA, FLOOR, TRAINING, certificate_in, charge, ledger_of, pool
from mutations import mutated, mutated_json
from own_networks import Alike
from reported_runs import write_run
from run_folders import Making, some_prefixes

from quorum_rl.budget import (
    SeededEntropy,
    certificate,
    check_certificate,
    check_signature,
    commitments,
    generate_key,
    read_ledger,
    sign,
    spent_epsilon,
)
from quorum_rl.budget.record import START, line_of, read_lines, record_of
from quorum_rl.budget.witness import Witness, read_witness, write_witness
from quorum_rl.cli.main import command_of
from quorum_rl.cli.release import _read_plan
from quorum_rl.errors import QuorumError
from quorum_rl.experts import load_population, save_population
from quorum_rl.experts.networks import Layer
from quorum_rl.experts.population import Population
from quorum_rl.logs import (
    Demonstrations,
    open_demonstrations,
    read_columns,
    read_table,
    save_demonstrations,
    write_table,
)
from quorum_rl.pipeline.export import policy_of
from quorum_rl.pipeline.folder import RunFolder
from quorum_rl.policy import Policy
from quorum_rl.privacy import plan_release
from quorum_rl.privacy.events import event_to_json
from quorum_rl.release import read_released_with_facts, save_released
from quorum_rl.release.to_file import WORDS, _Begun, _read
from quorum_rl.report import check_bundle, gather, gathering, publish
from quorum_rl.sweep.programs import Found, TrialResult
from quorum_rl.sweep.results import read_judged, save_found
from quorum_rl.sweep.run import TRIALS, _secrets

ALONE: Final = (charge(TRAINING, 1, whole_log=pool(1), **ACCEPTED),)


@dataclass(frozen=True)
class Kind:
    """A kind of file: a good one, its reader, and how it is changed.

    The reader returns what a guarantee rests on, which no accepted change may alter.
    """

    path: Path
    read: Callable[[Path], Any]
    change: Callable[[bytes, Random], bytes] = mutated


def arrays(*found: Any) -> list[bytes]:
    return [np.asarray(array).tobytes() for array in found]


def log_facts(log: Demonstrations) -> Any:
    return log.declared, log.declared.identity, arrays(*log.columns, *log.episodes)


def table_facts(log: Demonstrations) -> Any:
    """Without columns of successors the horizon is one step less, as the last step is."""
    return replace(log.declared, horizon=1), log.declared.identity


# --- one good file of each kind ---


def experts(folder: Path) -> Kind:
    rng = np.random.default_rng(0)
    layer: Any = Layer(rng.random((3, 4, 2), np.float32), rng.random((3, 2), np.float32))
    origin = {"world": "CartPole"}
    made = Population(
        observation_size=4, action_count=2, network=(layer,), origin=origin, p_min=0.02
    )
    save_population(made, folder / "file.safetensors")

    def facts(path: Path) -> Any:
        found = load_population(path)
        return found.p_min, found.identity, arrays(*found.network[0])

    return Kind(folder / "file.safetensors", facts)


@cache
def small_log() -> Demonstrations:
    whole = crowd().log
    return whole.select(np.arange(6)).compacted()


def native_log(folder: Path) -> Kind:
    save_demonstrations(small_log(), folder / "file.arrow")
    return Kind(folder / "file.arrow", lambda path: log_facts(open_demonstrations(path)))


def parquet_log(folder: Path) -> Kind:
    write_table(small_log(), folder / "file.parquet")
    return Kind(folder / "file.parquet", lambda path: table_facts(read_table(path)))


def csv_log(folder: Path) -> Kind:
    write_table(small_log(), folder / "file.csv")
    declared = small_log().declared
    return Kind(folder / "file.csv", lambda path: table_facts(read_table(path, declared)))


def released(folder: Path) -> Kind:
    save_released(some_prefixes(), folder / "file.parquet", event_to_json(FLOOR))

    def facts(path: Path) -> Any:
        found, said = read_released_with_facts(path)
        sizes = found.observation_size, found.action_count, found.horizon
        return said, sizes, arrays(*found.transitions, found.offsets)

    return Kind(folder / "file.parquet", facts)


def plan(folder: Path) -> Kind:
    made = plan_release(experts=3000, actions=2, horizon=20, epsilon=5, delta=1e-4, p_min=0.02,
                        iterations=3)  # fmt: skip
    (folder / "file.json").write_text(json.dumps(made.to_json()))

    def facts(path: Path) -> None:
        _read_plan(path)  # whose owner may change it: it is paid as it is

    return Kind(folder / "file.json", facts, mutated_json)


def ledger(folder: Path) -> Kind:
    content = ledger_of(*ALONE, *ALONE)
    (folder / "file").write_bytes(content)
    whole = record_of(content, folder)

    def facts(path: Path) -> Any:
        """Its lines may be cut off at the end, which a certificate tells, or torn: all counts."""
        found = read_ledger(path)
        assert found.events == whole.events[: len(found.events)]
        assert not found.torn or spent_epsilon(found) == whole.epsilon
        if not found.torn and found.head != whole.head:
            assert content.startswith(path.read_bytes())
            raise QuorumError("no certificate of the whole names this head.")
        return found.kind, found.epsilon, found.delta, found.identity

    return Kind(folder / "file", facts)


def rehashed_ledger(folder: Path) -> Kind:
    """All hashes written anew: what it says is accepted, and has a certificate of its own."""
    content = ledger_of(charge(FLOOR, 1, **ACCEPTED), *ALONE)
    (folder / "file").write_bytes(content)

    def change(whole: bytes, random: Random) -> bytes:
        entries = [dict(entry) for entry in read_lines(whole, "").entries]
        number = random.randrange(len(entries))
        try:
            entries[number] = json.loads(mutated_json(json.dumps(entries[number]).encode(), random))
            made, head = b"", START
            for entry in entries:
                made += line_of(entry, head)
                head = read_lines(made, "").head
        except (ValueError, RecursionError):  # of the forger, who tries again
            return change(whole, random)
        return made

    def facts(path: Path) -> None:
        certificate(read_ledger(path), delta=DELTA).to_json()

    return Kind(folder / "file", facts, change)


def certified(folder: Path) -> Kind:
    content = ledger_of(*ALONE)
    (folder / "ledger.jsonl").write_bytes(content)
    (folder / "certificate.json").write_text(certificate_in(content).to_json())
    return Kind(
        folder / "certificate.json", lambda path: check_certificate(path).certificate, mutated_json
    )


def signature(folder: Path) -> Kind:
    content = certificate_in(ledger_of(*ALONE)).to_json().encode()
    generate_key(folder / "key")
    signed = folder / "certificate.json"
    (folder / "certificate.json.sig").write_bytes(sign(content, signed, folder / "key"))
    return Kind(
        folder / "certificate.json.sig",
        lambda path: check_signature(path.read_bytes(), content, signed).lower(),
        mutated_json,
    )


def run_config(folder: Path) -> Kind:
    run = write_run(folder / "run")
    for name in ("policy.safetensors", "released.parquet", "metrics.jsonl", "comparison.json"):
        (run / name).unlink()

    def facts(path: Path) -> Any:
        found: Any = gather(path.parent)
        return found.guarantee.certificate

    return Kind(run / "config.json", facts, mutated_json)


def of_a_report(folder: Path, name: str, read: Callable[[Path], Any]) -> Kind:
    """A file of a run that its report shows: nothing of the guarantee rests on it."""
    run = write_run(folder / "run")

    def facts(path: Path) -> None:
        read(path.parent)

    return Kind(run / name, facts, mutated_json if name.endswith(".json") else mutated)


def run_metrics(folder: Path) -> Kind:
    return of_a_report(folder, "metrics.jsonl", gathering._learning_curve)


def run_judging(folder: Path) -> Kind:
    return of_a_report(folder, "judging.json", gathering._judged)


def policy(folder: Path) -> Kind:
    run = Making(folder)(ledger_of(*ALONE), TRAINING)

    def facts(path: Path) -> Any:
        found = Policy.load(path)
        return found.certificate, arrays(*found.networks["values"][0])

    return Kind(run / "policy.safetensors", facts)


def policy_by_code(folder: Path) -> Kind:
    params = Alike().init(jax.random.key(0), 3, 2)
    policy_of(Alike(), params, sizes=(3, 2)).save(folder / "policy.safetensors")

    def facts(path: Path) -> Any:
        found = Policy.load(path, learner=Alike()).by_code
        assert found is not None
        return found.said, arrays(*found.parameters.values())

    return Kind(folder / "policy.safetensors", facts)


def private_keys(folder: Path) -> Kind:
    entropy = SeededEntropy(1)
    run = RunFolder(folder / "run")
    run.keep_keys(run.keys(entropy))

    def facts(path: Path) -> Any:
        return RunFolder(path.parent.parent).keys(entropy)

    return Kind(folder / "run" / "private" / "keys.json", facts, mutated_json)


def private_release(folder: Path) -> Kind:
    """What a release by itself keeps: without the words that were charged none goes on."""
    words = {name: list(range(8)) for name in WORDS}
    begun = _Begun({"pool": pool(1), "seed": None}, False, words)
    (folder / "file").write_text(json.dumps(vars(begun)))

    def facts(path: Path) -> Any:
        found = _read(path)
        assert found is not None
        if found.committed != begun.committed:
            raise QuorumError("no charge holds this.")
        return found.settled, found.words

    return Kind(folder / "file", facts, mutated_json)


def private_trials(folder: Path) -> Kind:
    """What a sweep keeps: charges hold what follows from it."""
    place = RunFolder(folder / "run")
    kept: dict[str, Any] = {
        "trials": [{"clip_norm": 0.5}] * 2,
        "keys": [2**255, 7],
        "release": list(range(8)),
    }
    (place.private / TRIALS).write_text(json.dumps(kept))
    nothing: Any = None

    def facts(_: Path) -> Any:
        found = _secrets(place, nothing)
        if commitments(found, {}) != commitments(kept, {}):
            raise QuorumError("no charge holds this.")
        return found

    return Kind(place.private / TRIALS, facts, mutated_json)


def private_remaining(folder: Path) -> Kind:
    run = RunFolder(folder / "run")
    run.save_remaining(small_log().episodes)

    def facts(_: Path) -> None:
        run.read_remaining()

    return Kind(run.remaining, facts)


def private_state(folder: Path) -> Kind:
    run = RunFolder(folder / "run")
    state: Any = {"weights": np.arange(6, dtype=np.float32), "step": np.int32(3)}
    run.save(state)

    def facts(_: Path) -> None:
        run.resumed(state)

    return Kind(run.state, facts)


def a_witness(folder: Path) -> Kind:
    """Nothing vouches for it, so only how it is read is of interest."""
    seen = Witness.of_ledger(record_of(ledger_of(charge(TRAINING)), folder), folder / "some.ledger")
    assert write_witness(folder / "witness.json", seen)

    def facts(path: Path) -> None:
        read_witness(path, seen.of)

    return Kind(folder / "witness.json", facts, mutated_json)


def bundle(folder: Path) -> Kind:
    run = Making(folder)(ledger_of(*ALONE), TRAINING)
    publish(run, folder / "bundle")
    return Kind(
        folder / "bundle" / "MANIFEST.json",
        lambda path: check_bundle(path.parent).certificate,
        mutated_json,
    )


def configuration(folder: Path) -> Kind:
    text = (
        '[fit]\ndemonstrations = "a.arrow"\nepsilon = 5.0\ndelta = 1e-4\nfolder = "x"\n'
        'method = "dp-sgd"\nprivate-steps = 30\naccept = ["one-expert-each"]\n'
    )
    (folder / "file.toml").write_text(text)

    def facts(path: Path) -> None:
        command_of(["fit", "--config", str(path)])

    return Kind(folder / "file.toml", facts)


def columns_file(folder: Path) -> Kind:
    text = (
        'expert = "doctor"\nstep = "at"\nstep_orders = true\naction_labels = ["no", "yes"]\n'
        '[observation]\nsugar = { unit = "mg", fill = 90, clip = [40, 400], next = "after" }\n'
    )
    (folder / "file.toml").write_text(text)

    def facts(path: Path) -> None:
        read_columns(path)  # whose owner may change it: it says what is declared

    return Kind(folder / "file.toml", facts)


def sweep_table(folder: Path) -> Kind:
    program: Any = type("P", (), {"number": 0})()
    judged = [TrialResult(n, (0.5, 0.25), (10.0, 5.0), (3,), "") for n in range(3)]
    save_found(Found(0, judged, None), folder)  # type: ignore[arg-type]

    def facts(path: Path) -> None:
        read_judged(program, path.parent)

    return Kind(folder / "00000.parquet", facts)


KINDS: Final = (
    experts, native_log, parquet_log, csv_log, released, plan, ledger, rehashed_ledger, certified,
    signature, a_witness, run_config, run_metrics, run_judging, policy, policy_by_code,
    private_keys, private_release, private_trials, private_remaining, private_state, bundle,
    configuration, columns_file, sweep_table,
)  # fmt: skip
