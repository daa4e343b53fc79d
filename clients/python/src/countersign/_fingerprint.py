"""Digests of what a person approves: the fingerprint binds an approval, `args_sha256` binds a permit."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from ._canonical import MAX_BYTES, canonical_json, quoted

MAX_REVISION: Final = 2**53 - 1
"""The largest revision of an objective: what JSON in every language can carry."""


@dataclass(frozen=True)
class Objective:
    """What an agent is working on, in one revision."""

    transcript: str
    id: str
    revision: int
    """0 to 2^53-1."""

    def __post_init__(self) -> None:
        if isinstance(self.revision, bool) or not isinstance(self.revision, int):
            raise TypeError("the revision of an objective is an integer")
        if not 0 <= self.revision <= MAX_REVISION:
            raise ValueError("the revision of an objective is from 0 to 2^53-1")


def fingerprint(
    connector: str,
    account: str | None,
    action: str,
    arguments_json: str | bytes,
    objective: Objective | None = None,
    *,
    max_bytes: int = MAX_BYTES,
) -> str:
    """The fingerprint of a call: `v1:` and 64 hexadecimal digits. No account is `None` or the empty text.

    Raises `CanonicalError` for arguments that no sidecar takes.
    """
    arguments = canonical_json(arguments_json, max_bytes=max_bytes)
    if objective is None:
        said = "null"
    else:
        said = (
            f'{{"id":{quoted(objective.id)},"revision":{objective.revision},"transcript":{quoted(objective.transcript)}}}'
        )
    text = (
        f'{{"account":{quoted(account or "")},"action":{quoted(action)},"arguments":{arguments},'
        f'"connector":{quoted(connector)},"objective":{said},"v":1}}'
    )
    return "v1:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def arguments_digest(arguments_json: str | bytes, *, max_bytes: int = MAX_BYTES) -> str:
    """SHA-256 over the canonical arguments, in 64 hexadecimal digits: the claim `args_sha256` of a permit.

    Raises `CanonicalError` for arguments that no sidecar takes.
    """
    return hashlib.sha256(canonical_json(arguments_json, max_bytes=max_bytes).encode("utf-8")).hexdigest()
