"""Questions and answers as Flower's records: plain facts, and arrays that are never pickles."""

import json
import logging
import os
from typing import Any, Final

import numpy as np

from quorum_rl.errors import require_packages
from quorum_rl.sites.task import Answer, Facts, Question

FACTS: Final = "query.facts"  # the kinds of message, as Flower has them
SUM: Final = "train.sum"
SAID: Final = "said"
ARRAYS: Final = "arrays"


def require_flower() -> None:
    """Refuse what needs Flower where it is not installed; with it, nothing is sent to its makers.

    Raises:
        MissingPackageError: one sentence that says how to install it.
    """
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
    logging.getLogger("flwr").setLevel(logging.WARNING)
    require_packages("experts at their own sites", "sites", "flwr")


def of_facts(facts: Facts) -> Any:
    """A record of plain facts."""
    return _record({"facts": json.dumps(facts)}, [])


def of_question(question: Question) -> Any:
    said = {"task": json.dumps(question.task), "number": question.number}
    return _record(said, question.arrays)


def of_answer(answer: Answer) -> Any:
    return _record({"run": answer.run, "number": answer.number}, answer.arrays)


def of_refusal(message: Any) -> Any:
    """What a site says that does not answer: nothing of why, which is for those who run it."""
    from flwr.app import Error, Message
    from flwr.common.constant import ErrorCode

    error = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason="the site refuses")
    return Message(error, reply_to=message)


def refused(reply: Any) -> bool:
    """Whether it is a refusal, and not an error of the SuperLink's."""
    from flwr.common.constant import ErrorCode

    code = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
    return bool(reply.has_error() and reply.error.code == code)


def _record(said: dict[str, Any], arrays: list[Any]) -> Any:
    from flwr.app import ArrayRecord, ConfigRecord, RecordDict

    return RecordDict(
        {SAID: ConfigRecord(said), ARRAYS: ArrayRecord([np.asarray(leaf) for leaf in arrays])}
    )


def facts_in(record: Any) -> Facts:
    found: Facts = json.loads(record[SAID]["facts"])
    return found


def question_in(record: Any) -> Question:
    said = record[SAID]
    return Question(json.loads(said["task"]), int(said["number"]), _arrays_in(record))


def answer_in(record: Any) -> Answer:
    """An answer, from whoever sent it; what cannot be read as arrays becomes none."""
    said = record[SAID]
    run, number = str(said["run"]), int(said["number"])
    try:
        return Answer(run, number, _arrays_in(record))
    except Exception:  # whatever foreign bytes raise: the coordinator counts this as zero
        return Answer(run, number, [])


def _arrays_in(record: Any) -> list[Any]:
    return list(record[ARRAYS].to_numpy_ndarrays())
