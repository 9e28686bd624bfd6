"""Audits: what an adversary can really see, beside what the guarantee says that it cannot."""

from quorum_rl.audit.bounds import (
    LowerBound,
    gaussian_lower_bound,
    lower_bound,
    one_run_lower_bound,
)
from quorum_rl.audit.finding import Finding
from quorum_rl.audit.from_run_folder import case_of_run
from quorum_rl.audit.membership import Attack, membership_game
from quorum_rl.audit.pipeline import PipelineCase, audit_pipeline
from quorum_rl.audit.planted import BUGS, planted
from quorum_rl.audit.releases import ReleaseCase, audit_release
from quorum_rl.audit.trainings import TrainingCase, audit_in_one_run, audit_training

__all__ = [
    "BUGS",
    "Attack",
    "Finding",
    "LowerBound",
    "PipelineCase",
    "ReleaseCase",
    "TrainingCase",
    "audit_in_one_run",
    "audit_pipeline",
    "audit_release",
    "audit_training",
    "case_of_run",
    "gaussian_lower_bound",
    "lower_bound",
    "membership_game",
    "one_run_lower_bound",
    "planted",
]
