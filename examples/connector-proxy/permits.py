"""Checks Countersign's permits: what any process that holds a connector's credential does before it makes a call.

A permit is worth nothing to this process unless it is one by its form, a key of the sidecar signed it, issuer and audience are
the expected ones, its time is now, it is for this very call, and it was never used before. Each failing check has a reason.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from countersign import CanonicalError, canonical_json
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

MAX_TOKEN_BYTES: Final = 16 * 1024
MAX_JWKS_BYTES: Final = 64 * 1024
FETCH_TIMEOUT_SECONDS: Final = 5.0
FRESH_SECONDS: Final = 300.0
"""Keys older than this are asked for again: it is the `max-age` that the sidecar says."""
STALE_SECONDS: Final = 900.0
"""Keys older than this are used no more: a key that was taken out must not be good for ever."""
REFETCH_SECONDS: Final = 10.0
"""An unknown key id, which anybody can make up, has the keys fetched at most so often."""
REMEMBER_SECONDS: Final = 3600
"""Used permits are remembered for so much longer than they are good, so that no clock that is set back revives one."""


class Refused(Exception):
    """A call that is not made. 401: this is no good permit; 403: a good one, but not for this call; 503: nobody can tell."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class Call:
    """The call that is about to be made, as the process that makes it knows it: nothing here comes from the permit."""

    connector: str
    account: str
    """Empty: the connector has no accounts."""
    action: str
    arguments_sha256: str


@dataclass(frozen=True)
class Permit:
    """What is used of a permit that holds."""

    execution_id: str
    expires_at: int
    idempotency_key: str
    principal: str
    agent: str


class Keys:
    """The sidecar's public keys, from a file or from its health listener."""

    def __init__(self, source: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._keys: Mapping[str, Ed25519PublicKey] = {}
        self._tried: float | None = None
        self._read: float | None = None

    def get(self, key_id: str) -> Ed25519PublicKey:
        """The key of this id, fetched anew if it is unknown or what is known of it is old."""
        with self._lock:
            now = self._monotonic()
            old = self._read is None or now - self._read >= FRESH_SECONDS
            may_try = self._tried is None or now - self._tried >= REFETCH_SECONDS
            if (old or key_id not in self._keys) and may_try:
                self._tried = now
                try:
                    self._keys = _keys_of(self._fetch())
                    self._read = now
                except (OSError, ValueError):
                    # What is known is good for a while longer.
                    pass
            if self._read is None or now - self._read >= STALE_SECONDS:
                raise Refused(503, "KEYS_UNAVAILABLE", "the keys that check permits cannot be had")
            key = self._keys.get(key_id)
        if key is None:
            raise Refused(401, "PERMIT_KEY_UNKNOWN", "no key of the id that the permit names is known")
        return key

    def _fetch(self) -> bytes:
        if self._source.startswith(("http://", "https://")):
            with urllib.request.urlopen(self._source, timeout=FETCH_TIMEOUT_SECONDS) as answer:
                text = answer.read(MAX_JWKS_BYTES + 1)
        else:
            with Path(self._source).open("rb") as file:
                text = file.read(MAX_JWKS_BYTES + 1)
        return bytes(text)


class UsedPermits:
    """Remembers which permits were used, through restarts: a file of its own, written to the disk before the call is made."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS used (execution_id TEXT PRIMARY KEY, expires_at INTEGER NOT NULL)"
        )

    def use(self, permit: Permit, now: float) -> None:
        """Uses the permit up. Of any number of simultaneous calls, in any number of processes, one succeeds."""
        with self._lock:
            try:
                self._database.execute("DELETE FROM used WHERE expires_at < ?", (int(now) - REMEMBER_SECONDS,))
                used = self._database.execute(
                    "INSERT INTO used (execution_id, expires_at) VALUES (?, ?) ON CONFLICT DO NOTHING",
                    (permit.execution_id, permit.expires_at),
                )
            except sqlite3.Error as cause:
                raise Refused(503, "USED_PERMITS_UNAVAILABLE", "nobody can tell whether the permit was used") from cause
            if used.rowcount != 1:
                raise Refused(403, "PERMIT_ALREADY_USED", "this permit was used: a permit is for one call")


class Checker:
    """Checks permits for one issuer and audience."""

    def __init__(self, keys: Keys, issuer: str, audience: str, tolerance_seconds: int) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._tolerance = tolerance_seconds

    def check(self, token: str, call: Call, now: float) -> Permit:
        """The permit, if it holds for this call. Whether it was used is asked last: see `UsedPermits`."""
        claims = self._genuine(token)
        if _text(claims, "iss") != self._issuer:
            raise Refused(401, "PERMIT_ISSUER_MISMATCH", "it was issued by another issuer")
        if _text(claims, "aud") != self._audience:
            raise Refused(401, "PERMIT_AUDIENCE_MISMATCH", "it is for another audience")
        if now < _seconds(claims, "iat") - self._tolerance:
            raise Refused(401, "PERMIT_NOT_YET_VALID", "it begins later than now: compare the clocks")
        if now >= _seconds(claims, "exp") + self._tolerance:
            raise Refused(401, "PERMIT_EXPIRED", "its time is over")
        if _text(claims, "connector") != call.connector:
            raise Refused(403, "PERMIT_CONNECTOR_MISMATCH", "it is for another connector")
        if _text(claims, "action") != call.action:
            raise Refused(403, "PERMIT_ACTION_MISMATCH", "it is for another action")
        if (_text(claims, "account") if "account" in claims else "") != call.account:
            raise Refused(403, "PERMIT_ACCOUNT_MISMATCH", "it is for another account")
        if _text(claims, "args_sha256") != call.arguments_sha256:
            raise Refused(403, "PERMIT_ARGUMENTS_CHANGED", "it is for other arguments")
        return Permit(
            execution_id=_text(claims, "jti"),
            expires_at=_seconds(claims, "exp"),
            idempotency_key=_text(claims, "idempotency_key"),
            principal=_text(claims, "principal"),
            agent=_text(claims, "agent"),
        )

    def _genuine(self, token: str) -> dict[str, Any]:
        """The claims of a token that one of the keys signed."""
        parts = token.split(".")
        if len(token) > MAX_TOKEN_BYTES or len(parts) != 3:
            raise _malformed()
        header = _object(_decoded(parts[0]))
        # Before anything else: what a token says of its own algorithm is not to be followed, only compared.
        if header.get("alg") != "EdDSA":
            raise Refused(401, "PERMIT_ALGORITHM_REFUSED", "a permit is signed with EdDSA and nothing else")
        if header.get("typ") != "countersign-permit+jwt":
            raise Refused(401, "PERMIT_TYPE_MISMATCH", "this is a token of another kind than a permit")
        if header.keys() != {"alg", "kid", "typ"}:
            raise _malformed()
        key = self._keys.get(_text(header, "kid"))
        try:
            key.verify(_decoded(parts[2]), f"{parts[0]}.{parts[1]}".encode())
        except InvalidSignature:
            raise Refused(401, "PERMIT_SIGNATURE_INVALID", "the key that it names did not sign this") from None
        return _object(_decoded(parts[1]))


def _malformed() -> Refused:
    return Refused(401, "PERMIT_MALFORMED", "this is no permit")


def _decoded(part: str) -> bytes:
    """Base64url in the one way in which it can be written."""
    try:
        decoded = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise _malformed() from None
    if base64.urlsafe_b64encode(decoded).rstrip(b"=").decode() != part:
        raise _malformed()
    return decoded


def _object(text: bytes) -> dict[str, Any]:
    """A JSON object in which no member stands twice."""
    try:
        read = json.loads(canonical_json(text, max_bytes=MAX_TOKEN_BYTES))
    except CanonicalError:
        raise _malformed() from None
    # The empty text, which arguments may be, is an object without members: whatever is asked of it is missing.
    return dict(read)


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or value == "":
        raise _malformed()
    return value


def _seconds(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _malformed()
    return value


def _keys_of(jwks: bytes) -> dict[str, Ed25519PublicKey]:
    """The keys of a JWK Set that can check a permit. Raises `ValueError` where there is none."""
    found: dict[str, Ed25519PublicKey] = {}
    members = json.loads(canonical_json(jwks, max_bytes=MAX_JWKS_BYTES)).get("keys")
    for key in members if isinstance(members, list) else []:
        if not isinstance(key, dict) or key.get("kty") != "OKP" or key.get("crv") != "Ed25519":
            continue
        if key.get("use", "sig") != "sig" or key.get("alg", "EdDSA") != "EdDSA":
            continue
        key_id, public = key.get("kid"), key.get("x")
        if isinstance(key_id, str) and isinstance(public, str):
            try:
                found[key_id] = Ed25519PublicKey.from_public_bytes(_decoded(public))
            except Refused as cause:
                raise ValueError("a key is no base64url") from cause
    if not found:
        raise ValueError("no key for permits is in the set")
    return found
