"""The sites that a SuperLink of Flower connects to this coordinator."""

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from quorum_rl.errors import Interrupted, QuorumError
from quorum_rl.files import read_file
from quorum_rl.sites.link import SECONDS_BETWEEN_LOOKS, certificates_in, public_keys, reach
from quorum_rl.sites.records import (
    FACTS,
    SUM,
    answer_in,
    facts_in,
    of_facts,
    of_question,
    refused,
    require_flower,
)
from quorum_rl.sites.task import Answer, Facts, Question

SECONDS_FOR_A_TASK: Final = 30.0
SECONDS_FOR_A_NAME: Final = 5.0  # in a round: what a new node says of itself costs it no time
# Flower registers a run by the app that it would send to SuperNodes; Quorum's sites run their own.
APP: Final = """
[project]
name = "quorum"
version = "1.0.0"
description = "Quorum's sites run the code that is installed there."
license = "Apache-2.0"
dependencies = ["flwr>=1.41"]

[tool.flwr.app]
publisher = "quorum"

[tool.flwr.app.components]
serverapp = "quorum_rl.sites:serverapp"
clientapp = "quorum_rl.sites:clientapp"
"""


class FlowerSites:
    """Sites by the nodes that they are. `seconds` is how long a round waits for one of them.

    With `keys`, a site is the node that has its public key: Flower lets whoever reaches a SuperLink
    register a node there, under any name. Without, it is who says so first.

    Who was late is asked again and no more waited for, until it answers in time.
    """

    def __init__(self, grid: Any, seconds: float, keys: Mapping[str, bytes] | None = None) -> None:
        self._grid, self._seconds, self._keys = grid, seconds, keys
        self._nodes: dict[str, int] = {}
        self._claims: dict[str, int] = {}  # the last node that said it was the site
        self._known: set[int] = set()
        self._late: set[str] = set()

    def facts(self, wanted: Collection[str]) -> Mapping[str, Facts]:
        """Wait for sites of these names, for as long as a round waits.

        Raises:
            QuorumError: if the key of one of them is not known.
        """
        for name in wanted:
            if self._keys is not None and name not in self._keys:
                raise QuorumError(f"there is no key of the site {name!r}: give its {name}.pub.")
        found: dict[str, Facts] = {}
        end = time.monotonic() + self._seconds
        with _linked():
            while time.monotonic() < end and not all(name in found for name in wanted):
                found |= self._introduced(wanted, self._seconds)
                time.sleep(SECONDS_BETWEEN_LOOKS)
        return found

    def ask(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer]]:
        with _linked():
            yield from self._asked(questions)

    def _asked(self, questions: Mapping[str, Question]) -> Iterator[tuple[str, Answer]]:
        self._introduced(questions.keys(), min(self._seconds, SECONDS_FOR_A_NAME))
        names = {}
        for name, question in questions.items():
            if name in self._nodes:
                number = str(question.number)
                sent = self._sent(of_question(question), self._nodes[name], SUM, number)
                names[sent] = name
        waited_for = {name for name in names.values() if name not in self._late}
        waited_for = waited_for or set(names.values())
        for name, reply in self._replies(names, waited_for, self._seconds):
            question, answer = questions[name], None
            if refused(reply):
                answer = Answer(question.task["run"], question.number, [], refuses=True)
            elif reply.has_error():
                continue  # of the SuperLink: the node is gone
            waited_for.discard(name)
            self._late.discard(name)
            with suppress(Exception):  # whatever foreign records raise: as if nothing had come
                answer = answer or answer_in(reply.content)
            if answer is not None:
                yield name, answer
        self._late |= waited_for

    def _introduced(self, wanted: Collection[str], seconds: float) -> dict[str, Facts]:
        """What new nodes say of themselves, who are sites of these names.

        A name belongs to the node that has it until that is gone or late.
        """
        key_of = {node.node_id: node.public_key for node in self._grid.get_nodes()}
        here = set(key_of)
        new = {self._sent(of_facts({}), node, FACTS, "0"): node for node in here - self._known}
        self._known = here
        found: dict[str, Facts] = {}
        for node, reply in self._replies(new, set(new.values()), seconds):
            with suppress(Exception):  # whatever foreign records raise: it is no site
                facts = facts_in(reply.content)
                name = facts["name"]
                is_it = self._keys is None or self._keys[name] == key_of[node]
                if is_it and name in wanted:
                    self._claims[name] = node
                    found[name] = facts
        self._claims = {name: node for name, node in self._claims.items() if node in here}
        for name, node in self._claims.items():
            if self._nodes.get(name) not in here or name in self._late:
                self._nodes[name] = node
        self._nodes = {name: node for name, node in self._nodes.items() if node in here}
        return found

    def _sent(self, record: Any, node: int, kind: str, group: str) -> str:
        from flwr.app import Message

        message = Message(
            record, dst_node_id=node, message_type=kind, ttl=self._seconds + 60, group_id=group
        )
        return str(next(iter(self._grid.push_messages([message])), None))  # none has no reply

    def _replies(
        self, asked: Mapping[str, Any], wanted: Collection[Any], seconds: float
    ) -> Iterator[Any]:
        """Who answers, and what, until all wanted ones have or it is late."""
        open_ones, wanted = dict(asked), set(wanted)
        end = time.monotonic() + seconds
        while open_ones and wanted and time.monotonic() < end:
            for reply in self._grid.pull_messages(list(open_ones)):
                who = open_ones.pop(reply.metadata.reply_to_message_id, None)
                wanted.discard(who)
                if who is not None:
                    yield who, reply
            if wanted:
                time.sleep(SECONDS_BETWEEN_LOOKS)


@contextmanager
def _linked() -> Iterator[None]:
    """Where the SuperLink is gone, the run stops: what was done is kept."""
    import httpx

    try:
        yield
    except httpx.HTTPError as error:
        raise Interrupted("the SuperLink does not answer any more.") from error


@contextmanager
def sites_by_flower(
    superlink: str,
    *,
    root_certificates: Path | None = None,
    secret: Path | None = None,
    keys: Path | None = None,
    insecure: bool = False,
    seconds: float = 60.0,
) -> Iterator[FlowerSites]:
    """The sites behind a SuperLink that was started with `--isolation process`.

    `secret` is the file that it was started with as `--superexec-auth-secret-file`: without one,
    whoever reaches the SuperLink could take the coordinator's place. `keys` is the folder of the
    sites' public keys, NAME.pub. `insecure` is for one machine alone, and needs none of them.

    Raises:
        QuorumError: if the SuperLink cannot be reached, or does not let this coordinator in, or a
            file is not what it should be.
    """
    require_flower()
    import httpx

    if insecure and (root_certificates, secret, keys) != (None, None, None):
        raise QuorumError(
            "insecure goes with no certificates, secret or keys: leave it out, or them."
        )
    if not insecure and keys is None:
        raise QuorumError(
            "without the sites' public keys, whoever reaches the SuperLink could take a site's "
            "place: give keys, the folder with a NAME.pub of each (or insecure, on one machine)."
        )
    known = None if keys is None else public_keys(keys)
    to_link = superlink, insecure, certificates_in(root_certificates)
    shared = None if secret is None else read_file(secret, "secret")
    reach(superlink, to_link[2], insecure=insecure, seconds=0)
    try:
        token = _token(to_link, shared)
        grid, beat = _grid(to_link, token)
    except (httpx.HTTPError, OSError) as error:
        raise QuorumError(
            f"the SuperLink at {superlink!r} refuses this coordinator: check its secret "
            f"({type(error).__name__})."
        ) from error
    beat.start()
    try:
        yield FlowerSites(grid, seconds, known)
    finally:
        _end(grid, beat)


def _token(to_link: tuple[str, bool, bytes | None], secret: bytes | None) -> str:
    """Begin a run of Flower, and take it over: the token of its server task."""
    from flwr.cli.build import build_fab_from_files
    from flwr.common.serde import fab_to_proto
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.proto.runtime_pb2 import AcquireTaskRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.control.control_http_client import ControlHttpClient
    from flwr.supercore.fab import Fab
    from flwr.supercore.interceptors import (
        RuntimeVersionHttpInterceptor,
        SuperExecAuthHttpInterceptor,
    )
    from flwr.supercore.runtime import RuntimeHttpClient

    content, _ = build_fab_from_files({"pyproject.toml": APP.encode()})
    versions = RuntimeVersionHttpInterceptor(component_name="flwr-cli")
    with ControlHttpClient.from_server_address(*to_link, [versions]) as control:
        control.StartRun(StartRunRequest(fab=fab_to_proto(Fab("", content, {}))))
    interceptors: list[Any] = [RuntimeVersionHttpInterceptor(component_name="SuperExec")]
    if secret is not None:
        interceptors.append(
            SuperExecAuthHttpInterceptor(
                master_secret=secret, protected_methods={"/flwr.proto.Runtime/AcquireTask"}
            )
        )
    end = time.monotonic() + SECONDS_FOR_A_TASK
    with RuntimeHttpClient.from_server_address(*to_link, interceptors) as runtime:
        while time.monotonic() < end:
            asked = AcquireTaskRequest(supported_task_types=[TaskType.SERVER_APP])
            found = runtime.AcquireTask(asked)
            if found.token:
                return str(found.token)
            time.sleep(SECONDS_BETWEEN_LOOKS)
    raise QuorumError(
        "the SuperLink gave its task to somebody else: start it with --isolation process, and no "
        "SuperExec beside it."
    )


def _grid(to_link: tuple[str, bool, bytes | None], token: str) -> tuple[Any, Any]:
    from flwr.common.serde import run_from_proto
    from flwr.proto.runtime_pb2 import PullTaskInputRequest
    from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
    from flwr.supercore.task_identity import TaskIdentity
    from flwr.superlink.grid import HttpGrid

    grid = HttpGrid(*to_link, token=token)
    client = grid._runtime_client
    given = client.PullTaskInput(PullTaskInputRequest())
    TaskIdentity.task_id, TaskIdentity.run_id = given.task_id, given.run.run_id
    TaskIdentity.node_id = given.context.node_id
    grid.set_run(run_from_proto(given.run))
    return grid, HeartbeatSender(make_task_heartbeat_fn_http(client))


def _end(grid: Any, beat: Any) -> None:
    """Tell the SuperLink that the run is over."""
    import httpx
    from flwr.common.constant import SubStatus
    from flwr.proto.runtime_pb2 import PushTaskOutputRequest

    beat.stop()
    with suppress(httpx.HTTPError):
        done = PushTaskOutputRequest(sub_status=SubStatus.COMPLETED, details="")
        grid._runtime_client.PushTaskOutput(done)
    grid.close()
