/** Digests of what a person approves: the fingerprint binds an approval, `args_sha256` binds a permit. */

import { createHash } from "node:crypto";
import { canonicalJson, quoted, type Limits } from "./canonical.js";

/** The largest revision of an objective: what JSON in every language can carry. */
export const MAX_REVISION = Number.MAX_SAFE_INTEGER;

/** What an agent is working on, in one revision. */
export interface Objective {
  readonly transcript: string;
  readonly id: string;
  /** 0 to 2^53-1. */
  readonly revision: number | bigint;
}

/** What a fingerprint covers. */
export interface Call {
  readonly connector: string;
  /** The external identity; none, or the empty text: the connector has none. */
  readonly account?: string | undefined;
  readonly action: string;
  /** The arguments, as the text of a JSON object; empty means `{}`. Never what `JSON.parse` has read: it rounds numbers. */
  readonly argumentsJson: string | Uint8Array;
  readonly objective?: Objective | undefined;
}

/**
 * The fingerprint of a call: `v1:` and 64 hexadecimal digits.
 *
 * @throws {CanonicalError} for arguments that no sidecar takes.
 * @throws {RangeError} for a revision out of range, or a text that has no UTF-8.
 */
export function fingerprint(call: Call, limits: Limits = {}): string {
  const canonical = canonicalJson(call.argumentsJson, limits);
  const text =
    `{"account":${quoted(call.account ?? "")},"action":${quoted(call.action)},"arguments":${canonical},` +
    `"connector":${quoted(call.connector)},"objective":${objectiveText(call.objective)},"v":1}`;
  return `v1:${sha256(text)}`;
}

/**
 * SHA-256 over the canonical arguments, in 64 hexadecimal digits: the claim `args_sha256` of a permit.
 *
 * @throws {CanonicalError} for arguments that no sidecar takes.
 */
export function argumentsDigest(argumentsJson: string | Uint8Array, limits: Limits = {}): string {
  return sha256(canonicalJson(argumentsJson, limits));
}

function objectiveText(objective: Objective | undefined): string {
  if (objective === undefined) {
    return "null";
  }
  const { transcript, id, revision } = objective;
  const whole = typeof revision === "bigint" || Number.isSafeInteger(revision);
  if (!whole || revision < 0 || revision > MAX_REVISION) {
    throw new RangeError("the revision of an objective is an integer from 0 to 2^53-1");
  }
  // The number that is minus zero is zero.
  return `{"id":${quoted(id)},"revision":${BigInt(revision)},"transcript":${quoted(transcript)}}`;
}

function sha256(text: string): string {
  return createHash("sha256").update(text, "utf8").digest("hex");
}
