"""Countersign for Python: canonical JSON, digests and fingerprints, equal to the sidecar's."""

from ._canonical import MAX_BYTES, MAX_DEPTH, CanonicalError, canonical_json
from ._fingerprint import MAX_REVISION, Objective, arguments_digest, fingerprint

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_REVISION",
    "CanonicalError",
    "Objective",
    "arguments_digest",
    "canonical_json",
    "fingerprint",
]
