"""Answers lines of hexadecimal digits, each the bytes of a text, with what becomes of it: for comparing with the sidecar's own.

`C TEXT` canonicalises; `F CONNECTOR ACCOUNT ACTION TEXT [TRANSCRIPT ID REVISION]` fingerprints, `-` standing for the empty text.
"""

from __future__ import annotations

import sys

from countersign import CanonicalError, Objective, arguments_digest, canonical_json, fingerprint


def _bytes(word: str) -> bytes:
    return b"" if word == "-" else bytes.fromhex(word)


def _text(word: str) -> str:
    return _bytes(word).decode()


def _answer(words: list[str]) -> str:
    try:
        if words[0] == "C":
            given = _bytes(words[1])
            canonical = canonical_json(given)
            try:
                assert canonical_json(given.decode()) == canonical
            except UnicodeDecodeError:
                raise AssertionError("what is no UTF-8 was taken") from None
            return f"ok {canonical.encode().hex()} {arguments_digest(given)}"
        objective = Objective(_text(words[5]), _text(words[6]), int(words[7])) if len(words) > 5 else None
        connector, account, action = (_text(word) for word in words[1:4])
        return "ok " + fingerprint(connector, account, action, _bytes(words[4]), objective)
    except CanonicalError as refusal:
        return f"no {refusal.code} {refusal.offset} {refusal.pointer.encode().hex()}".rstrip()


def main() -> None:
    for line in sys.stdin:
        print(_answer(line.split()))


if __name__ == "__main__":
    main()
