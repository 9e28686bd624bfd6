"""A site as a node of Flower: Flower's own connection, and the code that is installed here.

A SuperNode runs what the coordinator sends to it. This node does not: it answers by Quorum's own
`ClientApp`, in one process, so that nothing is compiled twice.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from quorum_rl.errors import QuorumError
from quorum_rl.sites.link import SECONDS_BETWEEN_LOOKS, certificates_in, private_key, reach
from quorum_rl.sites.part import Site
from quorum_rl.sites.records import (
    FACTS,
    SUM,
    of_answer,
    of_facts,
    of_refusal,
    question_in,
    require_flower,
)

SECONDS_FOR_A_LINK: Final = 30.0  # that may be starting


def client_app(site: Site) -> Any:
    """Flower's `ClientApp` of a site: what it says of itself, and its sum in a round."""
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp

    def facts(message: Message, _: Context) -> Message:
        return Message(of_facts({"name": site.name, **site.facts}), reply_to=message)

    def total(message: Message, _: Context) -> Message:
        answer = site.answer(question_in(message.content))
        return Message(of_answer(answer), reply_to=message)

    app = ClientApp()
    app.query(FACTS.partition(".")[2])(facts)
    app.train(SUM.partition(".")[2])(total)
    return app


def serve(
    site: Site,
    superlink: str,
    *,
    root_certificates: Path | None = None,
    key: Path | None = None,
    insecure: bool = False,
    report: Callable[[str], None] = print,
    until: Callable[[], bool] = lambda: False,
) -> None:
    """Answer the coordinator behind a SuperLink, until it is stopped.

    `root_certificates` are those that the SuperLink's TLS is checked by, the system's unless given;
    `key` is the private key by which the SuperLink knows this node. `insecure` is for one machine
    alone: neither is used, and everybody on the way reads the sums.

    Raises:
        QuorumError: if the SuperLink cannot be reached, or refuses this node.
    """
    require_flower()
    from flwr.supernode.fleet_http_connection import http_request_response

    if insecure and (root_certificates is not None or key is not None):
        raise QuorumError("insecure goes with neither certificates nor a key: leave them out.")
    app = client_app(site)
    certificates = certificates_in(root_certificates)
    pair = None if key is None else private_key(key)
    reach(superlink, certificates, insecure=insecure, seconds=SECONDS_FOR_A_LINK, stopped=until)
    said = logging.getLogger("flwr")
    said.setLevel(logging.CRITICAL)  # a refusal is one sentence, and ours
    try:
        with http_request_response(superlink, insecure, certificates, pair) as connection:
            said.setLevel(logging.WARNING)
            report(f"the site {site.name!r} waits for the coordinator at {superlink}")
            while not until():
                if not _answered(app, connection, report):
                    time.sleep(SECONDS_BETWEEN_LOOKS)
            return
    except SystemExit as error:
        raise QuorumError(
            f"the SuperLink at {superlink!r} refuses this site: give the --key whose public half "
            "is registered there; a site that was killed is taken again after a minute."
        ) from error
    # Flower's connection says what happened, and ends.
    raise QuorumError(f"the connection to {superlink!r} ended: start the site again.")


def _answered(app: Any, connection: Any, report: Callable[[str], None]) -> bool:
    """Answer one message, if there is one.

    How long that took is not said: it may depend on what is in the logs.
    """
    from flwr.app import Context, Message, RecordDict
    from flwr.supercore.inflatable.inflatable_object import (
        get_all_nested_objects,
        get_object_tree,
        no_object_id_recompute,
    )
    from flwr.supercore.inflatable.inflatable_utils import pull_and_inflate_object_from_tree
    from flwr.supercore.run import RunNotRunningException

    node, receive, send, _, _, pull_object, push_object, confirm = connection
    try:
        received = receive()
        if received is None:
            return False
        head, tree = received
        run = head.metadata.run_id
        message = pull_and_inflate_object_from_tree(
            tree,
            lambda name: pull_object(run, name),
            lambda name: confirm(run, name),
            return_type=Message,
        )
        message.metadata.__dict__["_message_id"] = tree.object_id
        try:
            reply = app(message, Context(run, node, {}, RecordDict(), {}))
        except QuorumError as error:
            report(str(error))
            reply = of_refusal(message)
        except Exception as error:  # whatever a message of somebody else's brings about
            report(f"a message could not be answered ({type(error).__name__}): {error}")
            reply = of_refusal(message)
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with no_object_id_recompute():
            wanted, session = send(reply, get_object_tree(reply), 0.0)
            objects = get_all_nested_objects(reply)
            for name in wanted:
                push_object(run, session, name, objects[name].deflate())
    except RunNotRunningException:
        return False  # the coordinator has ended it meanwhile
    return True
