"""Canonical JSON and fingerprints against the published vectors, and at their edges."""

from __future__ import annotations

import json
import os
import pickle
import unittest
from pathlib import Path
from typing import Any

from countersign import MAX_BYTES, MAX_REVISION, CanonicalError, Objective, arguments_digest, canonical_json, fingerprint


def _vectors() -> dict[str, Any]:
    beside = Path(__file__).resolve().parents[3] / "tests" / "vectors" / "canonical-and-fingerprint.json"
    text = Path(os.environ.get("COUNTERSIGN_VECTORS", beside)).read_text(encoding="utf-8")
    vectors: dict[str, Any] = json.loads(text)
    return vectors


class Vectors(unittest.TestCase):
    def test_every_canonical_vector_is_reproduced_or_refused(self) -> None:
        vectors = _vectors()["canonical_json"]
        self.assertGreaterEqual(len(vectors), 35)
        for vector in vectors:
            with self.subTest(vector["name"]):
                if vector.get("refused"):
                    with self.assertRaises(CanonicalError):
                        canonical_json(vector["arguments_json"])
                else:
                    self.assertEqual(canonical_json(vector["arguments_json"]), vector["canonical"])

    def test_every_fingerprint_vector_is_reproduced(self) -> None:
        vectors = _vectors()["fingerprint"]
        self.assertGreaterEqual(len(vectors), 12)
        for vector in vectors:
            with self.subTest(vector["name"]):
                said = vector["objective"]
                objective = None if said is None else Objective(said["transcript"], said["id"], said["revision"])
                names = (vector["connector"], vector["account"], vector["action"])
                made = fingerprint(*names, vector["arguments_json"], objective)
                self.assertEqual(made, vector["fingerprint"])


class Edges(unittest.TestCase):
    def test_a_refusal_says_what_is_wrong_and_where(self) -> None:
        for text, code, pointer, offset in [
            ('{"a":{"b/~":[0,{"c":1,"c":2}]}}', "DUPLICATE_MEMBER", "/a/b~1~0/1/c", 22),
            ('{"\u00e9":"\\ud800"}', "UNPAIRED_SURROGATE", "/\u00e9", 7),
            ('{"a":[1,2,03]}', "INVALID_NUMBER", "/a/2", 10),
            ('{"a":1}x', "TRAILING_TEXT", "", 7),
            ("[]", "NOT_AN_OBJECT", "", 0),
            ('{"a\\x":1}', "INVALID_ESCAPE", "", 3),
            ('{"a":1e401}', "EXPONENT_OUT_OF_RANGE", "/a", 5),
        ]:
            with self.subTest(text), self.assertRaises(CanonicalError) as refused:
                canonical_json(text)
            said = refused.exception
            self.assertEqual((said.code, said.pointer, said.offset), (code, pointer, offset))

    def test_what_is_no_utf_8_is_refused_as_bytes_and_as_text(self) -> None:
        hostile: list[str | bytes] = [b'{"a":"\xff"}', b'{"a":"\xed\xa0\x80"}', '{"a":"\ud800"}', '{"a":"\udc00"}']
        for text in hostile:
            with self.subTest(text), self.assertRaises(CanonicalError) as refused:
                canonical_json(text)
            said = refused.exception
            self.assertEqual((said.code, said.pointer, said.offset), ("INVALID_UTF8", "/a", 6))

    def test_the_limit_counts_bytes_as_handed_over(self) -> None:
        full = '{"a":"' + "x" * (MAX_BYTES - 8) + '"}'
        self.assertEqual(canonical_json(full), full)
        longer: list[str | bytes] = [full + " ", full.replace("x", "\u00e9", 1), (full + " ").encode()]
        for text in longer:
            with self.assertRaises(CanonicalError) as refused:
                canonical_json(text)
            self.assertEqual((refused.exception.code, refused.exception.offset), ("TOO_LARGE", MAX_BYTES))
        with self.assertRaises(CanonicalError):
            canonical_json('{"a": 1}', max_bytes=7)
        with self.assertRaises(CanonicalError):
            canonical_json(full + " ", max_bytes=MAX_BYTES * 2)

    def test_what_is_no_text_is_a_mistake_of_the_program(self) -> None:
        mistakes: list[Any] = [None, {}, 1, bytearray(b"{}")]
        for wrong in mistakes:
            with self.assertRaises(TypeError):
                canonical_json(wrong)
        with self.assertRaises(ValueError):
            fingerprint("c\ud800", None, "x", "")
        for revision in [-1, MAX_REVISION + 1]:
            with self.assertRaises(ValueError):
                Objective("t", "i", revision)
        with self.assertRaises(TypeError):
            Objective("t", "i", True)

    def test_no_account_is_the_empty_one_and_no_arguments_are_the_empty_object(self) -> None:
        self.assertEqual(fingerprint("c", None, "x", ""), fingerprint("c", "", "x", "{}"))
        # `printf '{}' | sha256sum`
        nothing = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        self.assertEqual(arguments_digest(b""), nothing)

    def test_an_error_survives_a_process_border_and_shows_nothing_that_cannot_be_seen(self) -> None:
        with self.assertRaises(CanonicalError) as refused:
            canonical_json('{"\\u202e":tru}')
        again = pickle.loads(pickle.dumps(refused.exception))
        self.assertEqual((again.code, again.pointer, again.offset), ("UNEXPECTED_CHARACTER", "/\u202e", 13))
        self.assertTrue(str(again).isascii())


if __name__ == "__main__":
    unittest.main()
