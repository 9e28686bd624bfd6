"""Sites within one process, for tests and for trying things out: nothing leaves it."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from quorum_rl.sites.part import Site
from quorum_rl.sites.task import Answer, Facts, Question


class SitesHere:
    """Sites that answer one after the other."""

    def __init__(self, sites: Iterable[Site]) -> None:
        self._sites = {site.name: site for site in sites}

    def facts(self, wanted: Collection[str]) -> Mapping[str, Facts]:
        return {name: site.facts for name, site in self._sites.items() if name in wanted}

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer]]:
        for name, question in questions.items():
            if name in self._sites:
                yield name, self._sites[name].answer(question)
