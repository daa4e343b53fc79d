/** Countersign for TypeScript: canonical JSON, digests and fingerprints, equal to the sidecar's. */

export { CanonicalError, canonicalJson, MAX_BYTES, MAX_DEPTH, type Limits, type ProblemCode } from "./canonical.js";
export { argumentsDigest, fingerprint, MAX_REVISION, type Call, type Objective } from "./fingerprint.js";
