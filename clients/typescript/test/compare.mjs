// Answers lines of hexadecimal digits, each the bytes of a text, with what becomes of it: for comparing with the sidecar's own.
//
// `C TEXT` canonicalises; `F CONNECTOR ACCOUNT ACTION TEXT [TRANSCRIPT ID REVISION]` fingerprints, `-` standing for the empty
// text.
import { createInterface } from "node:readline";
import { argumentsDigest, CanonicalError, canonicalJson, fingerprint } from "countersign";

const bytes = (word = "-") => (word === "-" ? new Uint8Array() : new Uint8Array(Buffer.from(word, "hex")));
const text = (word = "-") => Buffer.from(bytes(word)).toString("utf8");
const hex = (/** @type {string} */ written) => Buffer.from(written, "utf8").toString("hex");

/** @param {string[]} words */
function answer(words) {
  try {
    if (words[0] === "C") {
      const given = bytes(words[1]);
      const canonical = canonicalJson(given);
      if (canonicalJson(text(words[1])) !== canonical) {
        throw new Error("a string and its bytes differ");
      }
      return `ok ${hex(canonical)} ${argumentsDigest(given)}`;
    }
    const objective =
      words.length > 5 ? { transcript: text(words[5]), id: text(words[6]), revision: BigInt(words[7] ?? "") } : undefined;
    const call = { connector: text(words[1]), account: text(words[2]), action: text(words[3]) };
    return `ok ${fingerprint({ ...call, argumentsJson: bytes(words[4]), objective })}`;
  } catch (refused) {
    if (refused instanceof CanonicalError) {
      return `no ${refused.code} ${refused.offset} ${hex(refused.pointer)}`.trimEnd();
    }
    throw refused;
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${answer(line.split(" "))}\n`);
}
