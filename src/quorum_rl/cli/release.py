"""`quorum release`: stage 1, from demonstrations and experts to published prefixes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from quorum_rl import budget, logs, privacy, release
from quorum_rl.cli.expert_files import Output, experts_from
from quorum_rl.cli.flags import NewFile
from quorum_rl.cli.output import (
    bar,
    console,
    show_facts,
    start_jax,
    stoppable,
    timed_bar,
)
from quorum_rl.cli.parser import Positional
from quorum_rl.errors import QuorumError
from quorum_rl.json_files import read_object, reading

if TYPE_CHECKING:
    from quorum_rl.types import Released


@dataclass(frozen=True, kw_only=True)
class Release(NewFile):
    """Release the prefixes that a quorum of the experts would have generated.

    The ledger is charged first. Each file of demonstrations can be released from once.

    Example: quorum release cartpole.arrow cartpole.safetensors --plan plan.json
    --ledger cartpole.ledger --out released.parquet --accept one-expert-each floor-everywhere
    """

    demonstrations: Annotated[Path, Positional("DEMONSTRATIONS")]
    """What the experts did: a file of 'quorum demos collect' or 'quorum demos import'."""
    experts: Annotated[Path, Positional("EXPERTS")]
    """The experts who did it: a file of 'quorum experts train', or ONNX files (a folder, a pattern
    in quotes, or a .txt file that lists them)."""
    plan: Path
    """A plan that 'quorum plan release --out' wrote."""
    ledger: Path
    """The ledger of these experts; see 'quorum ledger create'."""
    out: Path
    """The file for the released prefixes, Parquet. They may be published."""
    accept: tuple[str, ...] = ()
    """Assumptions that you answer for, by name; an error lists those that your logs need."""
    accepted_by: str | None = None
    """Who answers for them, such as 'A. Weber, data protection': the ledger, the certificate, the
    report and the bundle name them, with the date."""
    experts_output: Output = "probabilities"
    """What ONNX experts answer."""
    training_minimum: int = 1
    """Trajectories per expert to be left for training; experts with fewer are left out."""
    run_name: str = "release"
    """What the ledger calls this run."""
    seed: int | None = None
    """For reproduction only: the noise hides nothing from someone who knows the seed."""
    json: bool = False
    """Print the facts as JSON, and everything else to the standard error."""

    def run(self) -> None:
        release.forget_finished(self.out)
        self.check_new()
        for other in (self.demonstrations, self.experts, self.plan, self.ledger):
            if self.out.resolve() == other.resolve():
                raise QuorumError(f"--out is {str(other)!r} itself: give another name.")
        plan = _read_plan(self.plan)
        start_jax()
        # What is charged is finished: only a second Ctrl-C leaves that to the next call.
        with stoppable(console(stderr=self.json)), budget.Ledger.open(self.ledger) as ledger:
            released = self._released(plan, ledger)
            facts = {"ledger": ledger.record.identity, **privacy.event_to_json(plan.event)}
        counts = {"prefixes": len(released), "transitions": int(released.offsets[-1])}
        facts = {"released": str(self.out), **counts, **facts}
        show_facts(facts, *_in_words(released, self.out), as_json=self.json)

    def _released(self, plan: "privacy.ReleasePlan", ledger: "budget.Ledger") -> "Released":
        demonstrations = logs.open_demonstrations(self.demonstrations).of_at_least(None)
        removal = demonstrations.said_of_removal(plan.event.experts)
        if removal is not None and not self.json:  # whose standard error is for one refusal
            console().print(removal)
        experts = experts_from(self.experts, demonstrations, self.experts_output)
        cap = plan.event.prefix_cap
        with timed_bar(console(stderr=self.json), "counting") as update:
            return release.release_to_file(
                experts,
                demonstrations,
                plan,
                ledger,
                self.out,
                run=self.run_name,
                accepted=self.accept,
                accepted_by=self.accepted_by,
                training_minimum=self.training_minimum,
                seed=self.seed,
                progress=lambda steps, still_open: update(steps if still_open else cap, cap),
            )


def _read_plan(path: Path) -> "privacy.ReleasePlan":
    with reading(path, "quorum plan release"):
        facts = read_object(path)
    return privacy.plan_from_json(facts)


def _in_words(released: "Released", out: Path) -> Iterator[str]:
    """What came out: outputs of the mechanism, so they may be shown."""
    import numpy as np

    lengths = released.lengths
    yield f"{len(released)} prefixes, {int(lengths.sum())} transitions: {out}"
    if not len(released):
        return
    edges = np.unique(np.geomspace(1, int(lengths.max()) + 1, 9).round().astype(int))
    counts, edges = np.histogram(lengths, edges)
    yield "steps in a prefix, and how many have so many:"
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        label = f"{low}" if high - low == 1 else f"{low}–{high - 1}"
        yield f"{label:>9}  {bar(count / counts.max())} {count}"
