"""Sixty experts in one log, and the same at three sites; and sites that fail as they are told."""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from quorum_rl.learners import get_learner
from quorum_rl.logs import Declared, Demonstrations, from_episodes
from quorum_rl.pipeline import FitSettings, Fitted
from quorum_rl.sites import Agreement, Answer, Question, Site, SitesHere, fit_at_sites

# One machine takes them in chunks of 24, and so does the largest site.
MOST: Final = {"north": 23, "south": 17, "east": 20}
EXPERTS: Final = sum(MOST.values())
LEAST, ROUNDS = 20, 4
COST: Final[dict[str, Any]] = {"epsilon": 3.0, "delta": 1e-3}
SETTINGS: Final = FitSettings(
    private_steps=ROUNDS, local_steps=3, transitions_per_expert=4, allow_noise=True
)
LEARNER: Final = get_learner("bc", hidden_sizes=(4,))
OTHERS: Final = "other-experts"  # for every fit of a test has a ledger of its own
ACCEPTED: Final = ("one-expert-each", "one-site-each", "failures-alike")


def whole_log() -> Demonstrations:
    """Experts with two episodes each, whose length and actions differ."""
    rng = np.random.default_rng(7)
    length = rng.integers(1, 6, 2 * EXPERTS)
    return from_episodes(
        Declared(3, 2, 5, minimum_experts=LEAST, identity="of all sites"),
        expert=np.repeat(np.arange(EXPERTS), 2),
        length=length,
        observations=rng.normal(size=(int((length + 1).sum()), 2)),
        actions=rng.integers(0, 3, int(length.sum())),
        rewards=rng.normal(size=int(length.sum())),
        terminated=np.ones(2 * EXPERTS, bool),
        truncated=np.zeros(2 * EXPERTS, bool),
    )


def logs_at(log: Demonstrations) -> dict[str, Demonstrations]:
    """The log cut into those of the sites."""
    found, first = {}, 0
    for name, most in MOST.items():
        owner = log.episodes.expert
        found[name] = log.select((owner >= first) & (owner < first + most))
        first += most
    return found


def sites(*accepted: str, **logs: Demonstrations) -> list[Site]:
    """The sites of the whole log, or with other logs at some of them."""
    own = logs_at(whole_log()) | logs
    return [
        Site(name, log, most_experts=MOST[name], accepted=accepted) for name, log in own.items()
    ]


Sent = list[tuple[str, Answer]]
Change = Callable[[str, Question, Answer], Sent]
BAD: Final = "south"


def of_bad(change: Callable[[Answer], list[Answer]]) -> Change:
    """Change what one of the sites sends."""

    def changed(name: str, _: Question, answer: Answer) -> Sent:
        return [(name, sent) for sent in (change(answer) if name == BAD else [answer])]

    return changed


class Failing(SitesHere):
    """Sites whose answers are changed on their way; all questions and answers are written down."""

    def __init__(self, change: Change = lambda name, _question, answer: [(name, answer)]) -> None:
        super().__init__(sites(OTHERS))
        self.change = change
        self.asked: list[tuple[int, list[bytes]]] = []
        self.honest: dict[tuple[int, str], list[Any]] = {}

    def facts(self, wanted: Collection[str]) -> Mapping[str, Any]:
        return super().facts(wanted)

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer]]:
        first = next(iter(questions.values()))
        self.asked.append((first.number, [leaf.tobytes() for leaf in first.arrays]))
        for name, question in questions.items():
            answer = self._sites[name].answer(question)
            self.honest[question.number, name] = answer.arrays
            yield from self.change(name, question, answer)


def fitted_at_sites(reached: SitesHere, folder: Path, **choices: Any) -> Fitted:
    minimum = choices.pop("minimum_sites", 1)
    usual: dict[str, Any] = {
        **COST,
        "minimum_experts": LEAST,
        "learner": LEARNER,
        "settings": SETTINGS,
        "accepted": (*ACCEPTED, OTHERS),
        "seed": 1,
        "report": lambda _: None,
    }
    return fit_at_sites(reached, Agreement(MOST, minimum), folder=folder, **usual | choices)
