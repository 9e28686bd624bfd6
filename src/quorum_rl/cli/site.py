"""`quorum site`: experts whose logs stay where they are."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from quorum_rl import budget, logs, sites
from quorum_rl.cli.configuration import as_toml, going_on
from quorum_rl.cli.flags import PolicyFlags, given
from quorum_rl.cli.output import console, start_jax, stoppable, stoppable_bar, timed_bar


@dataclass(frozen=True, kw_only=True)
class LinkFlags:
    """How to reach the SuperLink of Flower that is between a coordinator and its sites."""

    connect: str
    """Where the SuperLink is: host:port."""
    root_certificates: Path | None = None
    """The certificates (PEM) that the SuperLink's own is checked by; the system's unless given."""
    insecure: bool = False
    """Without TLS, for trying out on one machine: everybody on the way could read the sums."""


@dataclass(frozen=True, kw_only=True)
class Start(LinkFlags):
    """Answer a coordinator for the experts of this site. Their logs never leave it.

    What leaves it in a round is one sum over all of its experts, each clipped; the coordinator sees
    it without noise. Ctrl-C stops after the round under way; start it again whenever you like.

    Example: quorum site start --name north --log north.arrow --most-experts 25 --connect
    flower.example.org:8000 --root-certificates ca.pem --key north.key
    """

    name: str
    """What the coordinator calls this site."""
    log: Path
    """What its experts did: a file of 'quorum demos import' or 'quorum demos collect'."""
    most_experts: int
    """How many experts it has at most: a public number, on which it agrees with the coordinator."""
    key: Path | None = None
    """The private key (ssh-keygen -t ecdsa) by which the SuperLink knows this site."""
    accept: tuple[str, ...] = ()
    """Assumptions that this site answers for, by name: other-experts."""

    def run(self) -> None:
        sites.require_flower()
        start_jax()
        shown, began = console(), set[str]()
        log = logs.open_demonstrations(self.log)
        with stoppable(shown) as asked, timed_bar(shown, "rounds") as update:

            def heard(task: "sites.Task", number: int) -> None:
                if task.run not in began:
                    began.add(task.run)
                    shown.print(f"{task.run}: {task.in_words()}")
                update(number, task.rounds)
                if number == task.rounds:
                    shown.print(f"{task.run}: asked for the last of its {number} rounds")

            site = sites.Site(
                self.name, log, most_experts=self.most_experts, accepted=self.accept, heard=heard
            )
            sites.serve(
                site,
                self.connect,
                **given(self, "root_certificates key insecure"),
                report=shown.print,
                until=lambda: asked[0],
            )


@dataclass(frozen=True, kw_only=True)
class Fit(LinkFlags, PolicyFlags):
    """Learn one policy from the logs of several sites, at a cost of at most epsilon at delta.

    As 'quorum fit', with sums of experts that come from their sites. This coordinator draws the
    noise, has the ledger, and is trusted with each site's sums. The same command goes on where it
    was interrupted, with the sites that are there.

    Example: quorum site fit --sites north=25 south=30 east=20 --minimum-experts 70 --epsilon 1
    --delta 1e-4 --connect flower.example.org:8000 --root-certificates ca.pem --secret secret
    --keys keys --folder runs/sites --accept one-expert-each one-site-each failures-alike
    """

    sites: dict[str, int]
    """The sites by name, and how many experts each has at most: public numbers, in an order that
    stays."""
    minimum_experts: int
    """How many experts there are at least, at all sites together."""
    minimum_sites: int = 1
    """How many sites must answer in each round; with fewer, nothing is made of it."""
    patience: float = 60.0
    """Seconds that a round waits for a site. One that was late counts as nothing."""
    secret: Path | None = None
    """The file that the SuperLink was started with as --superexec-auth-secret-file."""
    keys: Path | None = None
    """The folder of the sites' public keys, NAME.pub: no other node is taken for a site."""

    common: ClassVar = ("sites", "minimum-experts", "minimum-sites", "epsilon", "delta", "connect",
                        "root-certificates", "secret", "keys", "patience", "folder", "ledger",
                        "accept", "json")  # fmt: skip

    def run(self) -> None:
        sites.require_flower()
        start_jax()
        shown = console(stderr=self.json)
        link = given(self, "root_certificates secret keys insecure")
        agreement = sites.Agreement(self.sites, self.minimum_sites)
        with (
            going_on(["site", "fit"], self),
            self.tracked() as track,
            stoppable_bar(shown, "rounds") as progress,
            sites.sites_by_flower(self.connect, **link, seconds=self.patience) as reached,
        ):
            made = sites.fit_at_sites(
                reached,
                agreement,
                **given(self, "minimum_experts epsilon delta settings seed folder"),
                budget=None if self.ledger is None else budget.Budget.open(self.ledger),
                learner=self.chosen_learner(),
                learner_settings=self.learner_settings(),
                accepted=self.accept,
                accepted_by=self.accepted_by,
                report=shown.print,
                progress=progress,
                track=track,
                command=as_toml(["site", "fit"], self),
            )
        self.tell(made, rounds=made.plan.private_steps)
