// What became of it, and what is kept.

import { strict as assert } from "node:assert";
import { randomUUID } from "node:crypto";
import { ReportOutcomeRequest } from "../gen/countersign/v1/agent_service.js";
import type { Permit } from "../gen/countersign/v1/agent_service.js";
import { Verdict } from "../gen/countersign/v1/approval.js";
import type { Execution } from "../gen/countersign/v1/execution.js";
import { ExecutionState, Outcome } from "../gen/countersign/v1/execution.js";
import { AuditRecord, GetPolicyRequest } from "../gen/countersign/v1/operator_service.js";
import { Code, attempt, but, evaluation, given, invocation, micros, refused } from "./client.js";
import type { Chapters, Sidecar } from "./client.js";

const { OUTCOME_FAILED, OUTCOME_SUCCEEDED, OUTCOME_UNKNOWN } = Outcome;

async function started(sidecar: Sidecar): Promise<Permit> {
  return given((await sidecar.consume("", invocation({}, { action: "GMAIL_FETCH_EMAILS" }), attempt())).permit);
}

async function report(
  sidecar: Sidecar,
  executionId: string,
  outcome: Outcome,
  more: Partial<ReportOutcomeRequest> = {},
): Promise<Execution> {
  const request = ReportOutcomeRequest.create({ principal: "pat", agent: "assistant", executionId, outcome });
  return given((await sidecar.agent.agent.reportOutcome({ ...request, ...more })).execution);
}

export const chapters: Chapters = {
  async "an outcome is reported once"(sidecar) {
    const { executionId } = await started(sidecar);
    for (const _ of [1, 2]) {
      const duration = { seconds: 1n, nanos: 500_000_000 };
      const more = { remoteReference: "message-17", duration };
      const execution = await report(sidecar, executionId, OUTCOME_SUCCEEDED, more);
      assert.equal(execution.state, ExecutionState.EXECUTION_STATE_SUCCEEDED);
      assert.equal(execution.remoteReference, "message-17");
    }
    const failed = report(sidecar, executionId, OUTCOME_FAILED);
    assert.equal((await refused(failed, Code.FAILED_PRECONDITION, "OUTCOME_FINAL")).metadata["state"], "succeeded");
    const unknown = report(sidecar, randomUUID(), OUTCOME_FAILED);
    await refused(unknown, Code.NOT_FOUND, "EXECUTION_NOT_FOUND");
  },

  async "nobody knows may become known with evidence"(sidecar) {
    const { executionId } = await started(sidecar);
    await report(sidecar, executionId, OUTCOME_UNKNOWN, { errorCode: "TIMEOUT" });
    const bare = report(sidecar, executionId, OUTCOME_SUCCEEDED);
    await refused(bare, Code.FAILED_PRECONDITION, "OUTCOME_EVIDENCE_MISSING");
    const known = await report(sidecar, executionId, OUTCOME_SUCCEEDED, { detail: "Found in the outbox." });
    assert.equal(known.state, ExecutionState.EXECUTION_STATE_SUCCEEDED);
    const failed = report(sidecar, executionId, OUTCOME_FAILED, { detail: "It bounced." });
    await refused(failed, Code.FAILED_PRECONDITION, "OUTCOME_FINAL");
  },

  async "the audit joins the story and tells no secrets"(sidecar) {
    const marker = `marker${randomUUID()}`;
    const call = invocation({ recipient_email: `${marker}@acme.com` }, { labels: { ticket: "T-1" } });
    const asked = await sidecar.ask(call, { agentNote: `${marker} note` });
    await sidecar.decide(asked.approval.id, "pat", Verdict.VERDICT_APPROVE);
    const changed = sidecar.consume(asked.consumeToken, but(call, { argumentsJson: "{}" }), attempt());
    await refused(changed, Code.FAILED_PRECONDITION, "ARGUMENTS_CHANGED");
    const permit = given((await sidecar.consume(asked.consumeToken, call, attempt())).permit);
    await report(sidecar, permit.executionId, OUTCOME_SUCCEEDED, { remoteReference: "message-18" });
    const records = await sidecar.records({ approvalId: asked.approval.id });
    assert.deepEqual(
      records.map((record) => record.kind),
      [
        "approval.requested",
        "approval.decided",
        "approval.approved",
        "consume.refused",
        "approval.consumed",
        "execution.reported",
      ],
    );
    const times = records.map((record) => micros(record.time));
    assert.deepEqual(times, [...times].sort((left, right) => Number(left - right)));
    const [requested, decided, , denied, consumed, reported] = records;
    assert.equal(requested?.caller, "dev-agent");
    assert.deepEqual(requested.labels, { ticket: "T-1" });
    assert.equal(requested.policyRevision, asked.approval.policyRevision);
    assert.deepEqual([decided?.caller, decided?.person, decided?.decision], ["dev-approver", "pat", "APPROVE"]);
    assert.equal(denied?.reason, "ARGUMENTS_CHANGED");
    // The consumption is the execution's start, as one record.
    assert.equal(consumed?.executionId, permit.executionId);
    assert.deepEqual([reported?.executionId, reported?.decision], [permit.executionId, "SUCCEEDED"]);
    for (const record of [requested, consumed, reported]) {
      assert.equal(record?.fingerprint, asked.approval.fingerprint);
    }
    const joined = await sidecar.records({ executionId: permit.executionId });
    assert.deepEqual(joined.map((record) => record.kind), ["approval.consumed", "execution.reported"]);
    assert(joined.every((record) => record.approvalId === asked.approval.id));
    const mac = given(asked.consumeToken.split(".").pop());
    for (const record of await sidecar.records()) {
      const bytes = Buffer.from(AuditRecord.encode(record).finish());
      assert(!bytes.includes(marker) && !bytes.includes(mac), record.kind);
    }
  },

  async "the operator sees the policy in force"(sidecar) {
    const policy = await sidecar.operator.operator.getPolicy(GetPolicyRequest.create());
    assert.deepEqual(
      policy.connectors.map(({ name, enabled, rules }) => [name, enabled, rules]),
      [["gmail", true, 1]],
    );
    assert.deepEqual(policy.problems, []);
    const { policyRevision } = await sidecar.agent.agent.evaluate(evaluation(invocation()));
    assert.equal(policy.revision, policyRevision);
  },
};
