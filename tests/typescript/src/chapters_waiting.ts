// An agent that stops for people, and those who watch.

import { strict as assert } from "node:assert";
import { randomUUID } from "node:crypto";
import type { ClientReadableStream } from "@grpc/grpc-js";
import {
  CloseWaitRequest,
  OpenWaitRequest,
  ResumeWaitRequest,
  WatchApprovalRequest,
} from "../gen/countersign/v1/agent_service.js";
import { ApprovalState, Verdict } from "../gen/countersign/v1/approval.js";
import { GetApprovalArgumentsRequest, WatchApprovalsRequest } from "../gen/countersign/v1/approver_service.js";
import { WaitState } from "../gen/countersign/v1/wait.js";
import { Code, attempt, deadline, given, invocation, refused } from "./client.js";
import type { Chapters } from "./client.js";

/** What a stream tells, one after the other. */
function answers<A>(stream: ClientReadableStream<A>): AsyncIterator<A> {
  return (stream as AsyncIterable<A>)[Symbol.asyncIterator]();
}

export const chapters: Chapters = {
  async "an agent stops and is woken with every verdict"(sidecar) {
    const objective = { transcript: randomUUID(), id: "input-1", revision: 9007199254740991n };
    const theirs = { principal: "pat", agent: "assistant" };
    const opening = OpenWaitRequest.create({ ...theirs, objective, summary: "Two mails" });
    const wait = given((await sidecar.agent.agent.openWait(opening)).wait);
    assert.equal(wait.objective?.revision, 9007199254740991n, "the largest revision, none of it lost");
    assert((await sidecar.agent.agent.openWait(opening)).existing, "the transcript has one active wait");
    const yes = await sidecar.ask(invocation(undefined, { objective }), { waitId: wait.id });
    const no = await sidecar.ask(invocation({ subject: "No" }, { objective }), { waitId: wait.id });
    const resuming = ResumeWaitRequest.create({
      ...theirs,
      waitId: wait.id,
      transcript: objective.transcript,
      version: wait.version,
      attemptId: attempt(),
    });
    const pending = await refused(sidecar.agent.agent.resumeWait(resuming), Code.FAILED_PRECONDITION, "WAIT_PENDING");
    assert.equal(pending.metadata["pending"], "2");
    await sidecar.decide(yes.approval.id, "pat", Verdict.VERDICT_APPROVE);
    await sidecar.decide(no.approval.id, "pat", Verdict.VERDICT_DENY);
    const resumed = await sidecar.agent.agent.resumeWait(resuming);
    const verdicts = new Map(resumed.approvals.map((approval) => [approval.id, approval.state]));
    assert.equal(verdicts.get(yes.approval.id), ApprovalState.APPROVAL_STATE_APPROVED);
    assert.equal(verdicts.get(no.approval.id), ApprovalState.APPROVAL_STATE_DENIED);
    assert((await sidecar.agent.agent.resumeWait(resuming)).replayed);
    const other = sidecar.agent.agent.resumeWait({ ...resuming, attemptId: attempt() });
    await refused(other, Code.FAILED_PRECONDITION, "WAIT_ALREADY_RESUMED");
    const closing = CloseWaitRequest.create({ ...theirs, waitId: wait.id });
    const closed = given((await sidecar.agent.agent.closeWait(closing)).wait);
    assert.equal(closed.state, WaitState.WAIT_STATE_CLOSED);
  },

  async "who watches is told every state"(sidecar) {
    const options = { deadline: deadline() };
    const { people, agent } = sidecar;
    const request = WatchApprovalsRequest.create({ principal: "pat" });
    const list = people.clients.approver.watchApprovals(request, people.metadata, options);
    const changes = answers(list);
    while ((await changes.next()).value.snapshotComplete === undefined);
    const asked = (await sidecar.ask(invocation())).approval;
    const one = WatchApprovalRequest.create({ principal: "pat", agent: "assistant", approvalId: asked.id });
    const told: [bigint, ApprovalState][] = [];
    for await (const { approval } of agent.clients.agent.watchApproval(one, agent.metadata, options)) {
      const { version, state } = given(approval as typeof asked | undefined);
      told.push([version, state]);
      if (state === ApprovalState.APPROVAL_STATE_PENDING) {
        await sidecar.decide(asked.id, "pat", Verdict.VERDICT_DENY);
      }
    }
    const { APPROVAL_STATE_PENDING, APPROVAL_STATE_DENIED } = ApprovalState;
    assert.deepEqual(told, [
      [1n, APPROVAL_STATE_PENDING],
      [2n, APPROVAL_STATE_DENIED],
    ]);
    for (const [version] of told) {
      const change = given((await changes.next()).value.approval as typeof asked | undefined);
      assert.deepEqual([change.id, change.version], [asked.id, version]);
    }
    list.on("error", () => undefined);
    list.cancel();
  },

  async "a person reads all of the arguments"(sidecar) {
    const args = { recipient_email: "kim@acme.com", body: "x".repeat(20_000), password: "hunter2" };
    const asked = (await sidecar.ask(invocation(args))).approval;
    assert(!asked.previewJson.includes("hunter2"));
    const reading = GetApprovalArgumentsRequest.create({ principal: "pat", approvalId: asked.id });
    const read = await sidecar.people.approver.getApprovalArguments(reading);
    assert.deepEqual([JSON.parse(read.argumentsJson), read.fingerprint], [args, asked.fingerprint]);
    const another = sidecar.people.approver.getApprovalArguments({ ...reading, principal: "stranger" });
    await refused(another, Code.NOT_FOUND, "APPROVAL_NOT_FOUND");
  },
};
