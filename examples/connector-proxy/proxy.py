"""A connector's proxy: it holds the credential of one account, and makes a call only for a permit that is for this very call.

    POST /actions/GMAIL_SEND_EMAIL
    Countersign-Permit: <permit_jwt of the answer to Consume>

    {"to": "kim@acme.com"}

The agent never sees the credential, and what it hands over here is not believed: connector and account are this process's
own, the action stands in the path, and the arguments are the body. The upstream service is sent the canonical text of what was
checked, so that no second parser can read anything else into it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

from countersign import MAX_BYTES, CanonicalError, arguments_digest, canonical_json

from permits import Call, Checker, Keys, Permit, Refused, UsedPermits

UPSTREAM_TIMEOUT_SECONDS: Final = 30.0
REQUEST_TIMEOUT_SECONDS: Final = 30.0
MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
PREFIX: Final = "/actions/"


class Connector:
    """The upstream service of one connector, as one account."""

    def __init__(self, upstream: str, credential: str, connector: str, account: str, actions: list[str]) -> None:
        self._upstream = urllib.parse.urlsplit(upstream)
        if self._upstream.scheme not in ("http", "https") or not self._upstream.hostname:
            raise ValueError("the upstream is an http:// or https:// address")
        self._credential = credential
        self.connector = connector
        self.account = account
        self.actions = frozenset(actions)

    def perform(self, action: str, arguments: str, permit: Permit) -> tuple[int, str, bytes]:
        """Makes the call. No redirect is followed: the credential goes where it was meant to go and nowhere else."""
        secure = self._upstream.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._upstream.hostname or "", self._upstream.port, timeout=UPSTREAM_TIMEOUT_SECONDS)
        try:
            path = f"{self._upstream.path.rstrip('/')}/{urllib.parse.quote(action, safe='')}"
            headers = {
                "authorization": f"Bearer {self._credential}",
                "content-type": "application/json",
                "idempotency-key": permit.idempotency_key,
            }
            connection.request("POST", path, body=arguments.encode(), headers=headers)
            answer = connection.getresponse()
            body = answer.read(MAX_ANSWER_BYTES)
            return answer.status, answer.headers.get("content-type", "application/octet-stream"), body
        except (OSError, http.client.HTTPException) as cause:
            message = "the upstream service did not answer; whether it acted is unknown: report UNKNOWN"
            raise Refused(502, "UPSTREAM_UNKNOWN", message) from cause
        finally:
            connection.close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "connector-proxy"
    sys_version = ""
    timeout = REQUEST_TIMEOUT_SECONDS
    checker: Checker
    used: UsedPermits
    connector: Connector

    def do_POST(self) -> None:
        try:
            status, kind, body = self._performed()
        except Refused as refused:
            status, kind = refused.status, "application/json"
            body = json.dumps({"reason": refused.reason, "message": refused.message}).encode() + b"\n"
            # What was not read of the request must not be taken for the next one.
            self.close_connection = True
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _performed(self) -> tuple[int, str, bytes]:
        action = urllib.parse.unquote(self.path[len(PREFIX) :]) if self.path.startswith(PREFIX) else ""
        if action not in self.connector.actions:
            raise Refused(404, "ACTION_UNKNOWN", f"POST {PREFIX}ACTION, for an action that this proxy performs")
        tokens = self.headers.get_all("countersign-permit") or []
        if len(tokens) != 1:
            raise Refused(401, "PERMIT_MISSING", "the header countersign-permit has the permit, once")
        try:
            arguments = canonical_json(self._body())
        except CanonicalError as cause:
            raise Refused(400, "ARGUMENTS_REFUSED", str(cause)) from None
        call = Call(self.connector.connector, self.connector.account, action, arguments_digest(arguments))
        now = time.time()
        permit = self.checker.check(tokens[0].strip(), call, now)
        # The last thing before the call: whatever goes wrong from here on, this permit makes no second one.
        self.used.use(permit, now)
        return self.connector.perform(action, arguments, permit)

    def _body(self) -> bytes:
        length = self.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit()) or "transfer-encoding" in self.headers:
            raise Refused(411, "LENGTH_REQUIRED", "say the length of the arguments")
        if int(length) > MAX_BYTES:
            raise Refused(413, "ARGUMENTS_REFUSED", f"arguments have at most {MAX_BYTES} bytes")
        return self.rfile.read(int(length))

    def log_message(self, format: str, *arguments: object) -> None:
        # Status and path alone: permits and arguments are nobody's business.
        print(f"{self.command} {self.path!a} {arguments[1] if len(arguments) > 1 else ''}", file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes a connector's calls for Countersign's permits.", allow_abbrev=False)
    parser.add_argument("--listen", default="127.0.0.1:7480", metavar="HOST:PORT")
    parser.add_argument("--upstream", required=True, metavar="URL", help="calls are sent to URL/ACTION")
    parser.add_argument("--credential-file", required=True, type=Path, help="the upstream service's bearer token")
    parser.add_argument("--connector", required=True)
    parser.add_argument("--account", default="", help="left out: the connector has no accounts")
    parser.add_argument("--action", required=True, action="append", help="an action that is performed; may be said again")
    parser.add_argument("--jwks", required=True, metavar="FILE|URL", help="http://SIDECAR:7401/.well-known/jwks.json")
    parser.add_argument("--issuer", default="countersign")
    parser.add_argument("--audience", default="countersign-permit")
    parser.add_argument("--tolerance", default=5, type=int, metavar="SECONDS", help="how far clocks may be apart")
    parser.add_argument("--used", required=True, metavar="FILE", help="remembers which permits were used")
    said = parser.parse_args()
    if not 0 <= said.tolerance <= 300:
        parser.error("--tolerance is from 0 to 300")
    host, _, port = said.listen.rpartition(":")
    Handler.checker = Checker(Keys(said.jwks), said.issuer, said.audience, said.tolerance)
    Handler.used = UsedPermits(said.used)
    credential = said.credential_file.read_text(encoding="utf-8").strip()
    Handler.connector = Connector(said.upstream, credential, said.connector, said.account, said.action)
    server = ThreadingHTTPServer((host.strip("[]"), int(port)), Handler)
    print(f"listening on {server.server_address[0]!s}:{server.server_address[1]}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
