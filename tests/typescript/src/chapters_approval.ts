// Asking people, and their answers.

import { strict as assert } from "node:assert";
import { randomUUID } from "node:crypto";
import { CancelApprovalRequest, RequestApprovalRequest } from "../gen/countersign/v1/agent_service.js";
import { ApprovalState, OmissionKind, Verdict } from "../gen/countersign/v1/approval.js";
import { DecideRequest, ListApprovalsRequest, RevokeApprovalRequest } from "../gen/countersign/v1/approver_service.js";
import { Decision } from "../gen/countersign/v1/decision.js";
import { Code, attempt, but, consumption, given, invocation, micros, refused } from "./client.js";
import type { Chapters } from "./client.js";

const { VERDICT_APPROVE, VERDICT_DENY } = Verdict;

export const chapters: Chapters = {
  async "asking makes an approval that shows what a person needs"(sidecar) {
    const secret = "correct horse battery staple";
    const call = invocation({ recipient_email: "kim@acme.com", password: secret, subject: "a\u202eb" });
    const asked = await sidecar.ask(call, { agentNote: "She asked for it." });
    assert.equal(asked.decision, Decision.DECISION_CONFIRMATION_REQUIRED);
    assert(asked.consumeToken.startsWith("cs1.") && !asked.existing);
    const { approval } = asked;
    assert.equal(approval.state, ApprovalState.APPROVAL_STATE_PENDING);
    assert.deepEqual([approval.principal, approval.agent, approval.account], ["pat", "assistant", "work-mailbox-a"]);
    assert.equal(approval.agentNote, "She asked for it.");
    assert.equal(micros(approval.decideBy) - micros(approval.createTime), 300_000_000n);
    const preview = JSON.parse(approval.previewJson) as Record<string, string>;
    assert.equal(preview["recipient_email"], "kim@acme.com");
    assert(!approval.previewJson.includes(secret) && !given(preview["subject"]).includes("\u202e"));
    const omitted = (pointer: string) => approval.omissions.find((omission) => omission.pointer === pointer)?.kind;
    assert.equal(omitted("/password"), OmissionKind.OMISSION_KIND_MASKED);
    assert.equal(omitted("/subject"), OmissionKind.OMISSION_KIND_NEUTRALISED);
    assert(!approval.message.includes(secret));
  },

  async "the same question is asked once"(sidecar) {
    const call = invocation({ recipient_email: "kim@acme.com", subject: "Once" });
    const first = await sidecar.ask(call);
    const argumentsJson = '{"subject": "Once", "recipient_email": "kim@acme.com"}';
    const again = await sidecar.ask(but(call, { argumentsJson, connection: "another" }));
    assert(again.existing);
    assert.deepEqual([again.approval.id, again.consumeToken], [first.approval.id, first.consumeToken]);
    const other = await sidecar.ask(but(call, { argumentsJson: argumentsJson.replace("Once", "Twice") }));
    assert(!other.existing && other.approval.id !== first.approval.id);
  },

  async "a request id stands for one request"(sidecar) {
    const call = invocation();
    const requestId = `request-${randomUUID()}`;
    const first = await sidecar.ask(call, { requestId });
    await sidecar.decide(first.approval.id, "pat", VERDICT_DENY);
    const again = await sidecar.ask(call, { requestId });
    assert(again.existing && again.approval.id === first.approval.id);
    assert.equal(again.approval.state, ApprovalState.APPROVAL_STATE_DENIED, "its present state");
    const other = RequestApprovalRequest.create({ invocation: invocation(), requestId });
    await refused(sidecar.agent.agent.requestApproval(other), Code.ALREADY_EXISTS, "REQUEST_ID_REUSED");
  },

  async "nothing is asked where nothing is to confirm or to be had"(sidecar) {
    const read = RequestApprovalRequest.create({ invocation: invocation({}, { action: "GMAIL_FETCH_EMAILS" }) });
    const allowed = await sidecar.agent.agent.requestApproval(read);
    assert.equal(allowed.decision, Decision.DECISION_ALLOW);
    assert(allowed.approval === undefined && allowed.consumeToken === "");
    const never = RequestApprovalRequest.create({ invocation: invocation({}, { action: "GMAIL_DELETE_EMAIL" }) });
    const denied = sidecar.agent.agent.requestApproval(never);
    const refusal = await refused(denied, Code.PERMISSION_DENIED, "POLICY_DENIED");
    assert.equal(refusal.metadata["policy_reason"], "SCOPE_EXCEEDS_CEILING");
  },

  async "only people of the requirement decide and each clause needs its own"(sidecar) {
    const call = invocation({ recipient_email: "kim@elsewhere.example" });
    const asked = await sidecar.ask(call);
    const decide = (approvalId: string, principal: string) =>
      sidecar.people.approver.decide(DecideRequest.create({ approvalId, principal, verdict: VERDICT_APPROVE }));
    await refused(decide(asked.approval.id, ""), Code.INVALID_ARGUMENT, "PRINCIPAL_REQUIRED");
    // Whoever has no part in it cannot tell it from one that is not there.
    const hidden = await refused(decide(asked.approval.id, "mallory"), Code.NOT_FOUND, "APPROVAL_NOT_FOUND");
    const absent = await refused(decide(randomUUID(), "mallory"), Code.NOT_FOUND, "APPROVAL_NOT_FOUND");
    assert.deepEqual(hidden, absent);

    const owner = await sidecar.decide(asked.approval.id, "pat", VERDICT_APPROVE, "I know them.");
    assert.equal(owner.state, ApprovalState.APPROVAL_STATE_PENDING, "finance has not answered");
    const early = consumption(asked.consumeToken, call, attempt());
    await refused(sidecar.agent.agent.consume(early), Code.FAILED_PRECONDITION, "APPROVAL_PENDING");
    const finance = await sidecar.decide(asked.approval.id, "dana", VERDICT_APPROVE);
    assert.equal(finance.state, ApprovalState.APPROVAL_STATE_APPROVED);
    assert.deepEqual(
      finance.decisions.map((decision) => [decision.principal, decision.asOwner, decision.groups]),
      [
        ["pat", true, []],
        ["dana", false, ["finance"]],
      ],
    );
    const same = await sidecar.decide(asked.approval.id, "dana", VERDICT_APPROVE);
    assert.deepEqual(same, finance, "the same answer again changes nothing");
  },

  async "what was not shown is not approved"(sidecar) {
    const asked = await sidecar.ask(invocation());
    const request = DecideRequest.create({
      approvalId: asked.approval.id,
      principal: "pat",
      verdict: VERDICT_APPROVE,
      shownFingerprint: `v1:${"0".repeat(64)}`,
    });
    const blind = sidecar.people.approver.decide(request);
    await refused(blind, Code.FAILED_PRECONDITION, "SHOWN_FINGERPRINT_DIFFERS");
    assert.equal(await sidecar.state(asked.approval), "PENDING");
    await sidecar.people.approver.decide({ ...request, shownFingerprint: asked.approval.fingerprint });
    assert.equal(await sidecar.state(asked.approval), "APPROVED");
  },

  async "a denial ends it and says who"(sidecar) {
    const call = invocation();
    const asked = await sidecar.ask(call);
    await sidecar.decide(asked.approval.id, "pat", VERDICT_DENY, "Not today.");
    const consume = sidecar.consume(asked.consumeToken, call, attempt());
    const refusal = await refused(consume, Code.FAILED_PRECONDITION, "APPROVAL_DENIED");
    assert.deepEqual([refusal.metadata["decided_by"], refusal.metadata["verdict"]], ["pat", "DENY"]);
    const late = sidecar.decide(asked.approval.id, "pat", VERDICT_APPROVE);
    assert.equal((await refused(late, Code.FAILED_PRECONDITION, "APPROVAL_DENIED")).metadata["decided_by"], "pat");
  },

  async "what was cancelled or revoked is not used"(sidecar) {
    const withdrawn = invocation();
    const cancelled = await sidecar.approved(withdrawn);
    const cancel = { principal: "pat", agent: "assistant", approvalId: cancelled.approval.id };
    for (const _ of [1, 2]) {
      const answer = await sidecar.agent.agent.cancelApproval(CancelApprovalRequest.create(cancel));
      assert.equal(answer.approval?.state, ApprovalState.APPROVAL_STATE_CANCELLED);
    }
    const used = sidecar.consume(cancelled.consumeToken, withdrawn, attempt());
    await refused(used, Code.FAILED_PRECONDITION, "APPROVAL_CANCELLED");

    const taken = invocation();
    const revoked = await sidecar.approved(taken);
    const revoke = { principal: "pat", approvalId: revoked.approval.id, reason: "A mistake." };
    for (const _ of [1, 2]) {
      const answer = await sidecar.people.approver.revokeApproval(RevokeApprovalRequest.create(revoke));
      assert.equal(answer.approval?.state, ApprovalState.APPROVAL_STATE_REVOKED);
    }
    const after = sidecar.consume(revoked.consumeToken, taken, attempt());
    await refused(after, Code.FAILED_PRECONDITION, "APPROVAL_REVOKED");
  },

  async "people list what is theirs page by page"(sidecar) {
    const principal = `owner-${randomUUID()}`;
    const made: string[] = [];
    for (const _ of [1, 2, 3, 4, 5]) {
      made.unshift((await sidecar.ask(invocation(undefined, { principal }))).approval.id);
    }
    const list = (which: Partial<ListApprovalsRequest>) =>
      sidecar.people.approver.listApprovals({ ...ListApprovalsRequest.create({ principal, pageSize: 2 }), ...which });
    const listed: string[] = [];
    let [pageToken, pages] = ["", 0];
    do {
      const page = await list({ pageToken });
      listed.push(...page.approvals.map((approval) => approval.id));
      [pageToken, pages] = [page.nextPageToken, pages + 1];
      if (pageToken !== "") {
        const other = list({ principal: "dana", pageToken });
        await refused(other, Code.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID");
      }
    } while (pageToken !== "");
    assert.deepEqual([listed, pages], [made, 3]);
    const denied = { states: [ApprovalState.APPROVAL_STATE_DENIED] };
    assert.deepEqual((await list(denied)).approvals, []);
    await sidecar.decide(given(made[1]), principal, VERDICT_DENY);
    assert.deepEqual((await list(denied)).approvals.map((approval) => approval.id), [made[1]]);
  },
};
