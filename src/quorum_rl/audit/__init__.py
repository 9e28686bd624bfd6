"""Audits: what an adversary can really see, beside what the guarantee says that it cannot."""
