// Canonical JSON and fingerprints against the published vectors, and at their edges, through both builds of the package.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import test from "node:test";
import * as esm from "countersign";

/** @type {typeof esm} */
const commonjs = createRequire(import.meta.url)("countersign");
const beside = new URL("../../../tests/vectors/canonical-and-fingerprint.json", import.meta.url);
const vectors = JSON.parse(readFileSync(process.env["COUNTERSIGN_VECTORS"] ?? beside, "utf8"));

for (const [build, countersign] of /** @type {const} */ ([
  ["esm", esm],
  ["commonjs", commonjs],
])) {
  const { argumentsDigest, CanonicalError, canonicalJson, fingerprint, MAX_BYTES } = countersign;

  /** @param {string | Uint8Array} text @param {import("countersign").Limits} limits */
  const refusal = (text, limits = {}) => {
    try {
      canonicalJson(text, limits);
    } catch (refused) {
      assert.ok(refused instanceof CanonicalError && refused instanceof Error);
      return [refused.code, refused.pointer, refused.offset];
    }
    return assert.fail(`not refused: ${String(text).slice(0, 100)}`);
  };

  test(`${build}: every canonical vector is reproduced or refused`, () => {
    assert.ok(vectors.canonical_json.length >= 35);
    for (const vector of vectors.canonical_json) {
      if (vector.refused) {
        refusal(vector.arguments_json);
      } else {
        assert.equal(canonicalJson(vector.arguments_json), vector.canonical, vector.name);
      }
    }
  });

  test(`${build}: every fingerprint vector is reproduced`, () => {
    assert.ok(vectors.fingerprint.length >= 12);
    for (const vector of vectors.fingerprint) {
      const { connector, account, action, arguments_json, objective } = vector;
      const call = { connector, account, action, argumentsJson: arguments_json, objective: objective ?? undefined };
      assert.equal(fingerprint(call), vector.fingerprint, vector.name);
    }
  });

  test(`${build}: a refusal says what is wrong and where`, () => {
    assert.deepEqual(refusal('{"a":{"b/~":[0,{"c":1,"c":2}]}}'), ["DUPLICATE_MEMBER", "/a/b~1~0/1/c", 22]);
    assert.deepEqual(refusal('{"\u00e9":"\\ud800"}'), ["UNPAIRED_SURROGATE", "/\u00e9", 7]);
    assert.deepEqual(refusal('{"a":[1,2,03]}'), ["INVALID_NUMBER", "/a/2", 10]);
    assert.deepEqual(refusal("[]"), ["NOT_AN_OBJECT", "", 0]);
    assert.deepEqual(refusal('{"__proto__":{"__proto__":x}}'), ["UNEXPECTED_CHARACTER", "/__proto__/__proto__", 26]);
    assert.equal(canonicalJson('{"constructor":1,"__proto__":2}'), '{"__proto__":2,"constructor":1}');
    try {
      canonicalJson('{"\\u202e":tru}');
    } catch (refused) {
      assert.match(String(refused), /^[ -~]+$/);
    }
  });

  test(`${build}: what is no UTF-8 is refused as bytes and as a string`, () => {
    const bytes = (/** @type {number[]} */ ...middle) =>
      new Uint8Array([...Buffer.from('{"a":"'), ...middle, ...Buffer.from('"}')]);
    for (const text of [
      bytes(0xff),
      bytes(0xed, 0xa0, 0x80),
      bytes(0xc0, 0x80),
      bytes(0xe0, 0x80, 0x80),
      bytes(0xf4, 0x90, 0x80, 0x80),
      bytes(0xe2, 0x82),
      '{"a":"\ud800"}',
      '{"a":"\udc00\ud800"}',
    ]) {
      assert.deepEqual(refusal(text), ["INVALID_UTF8", "/a", 6]);
    }
  });

  test(`${build}: the limit counts bytes as handed over`, () => {
    const full = `{"a":"${"x".repeat(MAX_BYTES - 8)}"}`;
    assert.equal(canonicalJson(full), full);
    for (const text of [`${full} `, full.replace("x", "\u00e9"), Buffer.from(`${full} `)]) {
      assert.deepEqual(refusal(text), ["TOO_LARGE", "", MAX_BYTES]);
    }
    assert.deepEqual(refusal('{"a": 1}', { maxBytes: 7 }), ["TOO_LARGE", "", 7]);
    assert.deepEqual(refusal(`${full} `, { maxBytes: MAX_BYTES * 2 }), ["TOO_LARGE", "", MAX_BYTES]);
  });

  test(`${build}: what no sidecar could be told is a mistake of the program`, () => {
    const call = { connector: "c", action: "x", argumentsJson: "" };
    assert.equal(fingerprint(call), fingerprint({ ...call, account: "", argumentsJson: "{}" }));
    assert.throws(() => fingerprint({ ...call, connector: "\ud800" }), RangeError);
    for (const revision of [-1, 1.5, Number.NaN, 2 ** 53, 2n ** 53n, -1n]) {
      assert.throws(() => fingerprint({ ...call, objective: { transcript: "t", id: "i", revision } }), RangeError);
    }
    // @ts-expect-error: objects are not taken, since what made them may have rounded.
    assert.throws(() => canonicalJson({}), TypeError);
    // `printf '{}' | sha256sum`
    assert.equal(argumentsDigest(""), "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
  });
}
