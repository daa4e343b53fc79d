// The one gate before an effect.

import { strict as assert } from "node:assert";
import { Decision } from "../gen/countersign/v1/decision.js";
import { Code, attempt, but, consumption, deadline, given, invocation, refused } from "./client.js";
import type { Chapters } from "./client.js";

export const chapters: Chapters = {
  async "what is not what was approved is refused by name"(sidecar) {
    const call = invocation('{"recipient_email": "kim@acme.com", "amount": 9007199254740993}');
    const asked = await sidecar.approved(call);
    const args = call.argumentsJson;
    const objective = { transcript: "transcript-1", id: "objective-1", revision: 3n };
    for (const [changed, reason] of [
      [{ principal: "sam" }, "PRINCIPAL_MISMATCH"],
      [{ connector: "outlook" }, "CONNECTOR_MISMATCH"],
      [{ action: "GMAIL_FETCH_EMAILS" }, "ACTION_MISMATCH"],
      [{ conversation: "another" }, "CONVERSATION_MISMATCH"],
      [{ conversation: "" }, "CONVERSATION_MISMATCH"],
      [{ agent: "intruder" }, "AGENT_MISMATCH"],
      [{ account: "work-mailbox-b" }, "ACCOUNT_MISMATCH"],
      [{ account: "" }, "ACCOUNT_MISMATCH"],
      [{ objective: undefined }, "OBJECTIVE_CHANGED"],
      [{ objective: { ...objective, transcript: "transcript-2" } }, "OBJECTIVE_CHANGED"],
      [{ objective: { ...objective, id: "objective-2" } }, "OBJECTIVE_CHANGED"],
      [{ objective: { ...objective, revision: 4n } }, "OBJECTIVE_CHANGED"],
      [{ argumentsJson: "{}" }, "ARGUMENTS_CHANGED"],
      [{ argumentsJson: args.replace("0993", "0992") }, "ARGUMENTS_CHANGED"],
      [{ argumentsJson: args.replace("kim@", "eve@") }, "ARGUMENTS_CHANGED"],
      [{ toolDefinitionDigest: `td1:${"0".repeat(64)}` }, "TOOL_DEFINITION_CHANGED"],
      // The first difference of the fixed order is the one that is named.
      [{ account: "work-mailbox-b", argumentsJson: "{}" }, "ACCOUNT_MISMATCH"],
    ] as const) {
      const consume = sidecar.consume(asked.consumeToken, but(call, changed), attempt());
      const refusal = await refused(consume, Code.FAILED_PRECONDITION, reason);
      assert(refusal.metadata["binding"]);
      assert.equal(await sidecar.state(asked.approval), "APPROVED", `${Object.keys(changed)} used it up`);
    }
    assert((await sidecar.consume(asked.consumeToken, call, attempt())).permit?.executionId);
  },

  async "a token that is none is refused with one text"(sidecar) {
    const call = invocation();
    const token = (await sidecar.approved(call)).consumeToken;
    const other = await sidecar.ask(invocation());
    const [start, mac] = [token.slice(0, token.lastIndexOf(".")), token.slice(token.lastIndexOf(".") + 1)];
    const swapped = [...other.consumeToken.split(".").slice(0, 3), mac].join(".");
    const forged = `${start}.${mac.startsWith("A") ? "B" : "A"}${mac.slice(1)}`;
    const texts = new Set<string>();
    const bad = ["nonsense", `${token}A`, token.slice(0, -1), token.toUpperCase(), forged, swapped, other.approval.id];
    for (const none of bad) {
      const refusal = await refused(sidecar.consume(none, call, attempt()), Code.FAILED_PRECONDITION, "TOKEN_INVALID");
      texts.add(JSON.stringify([refusal.message, refusal.metadata]));
    }
    assert.equal(texts.size, 1, [...texts].join("\n"));
  },

  async "an approval is used once and a lost answer is not a lost approval"(sidecar) {
    const call = invocation({ recipient_email: "kim@acme.com", subject: "Once only" });
    const asked = await sidecar.approved(call);
    const argumentsJson = '{"subject":"Once \\u006fnly","recipient_email":"kim@acme.com"}';
    const first = attempt();
    const opened = await sidecar.consume(asked.consumeToken, but(call, { argumentsJson, connection: "other" }), first);
    assert.equal(opened.decision, Decision.DECISION_CONFIRMATION_REQUIRED);
    assert(!opened.replayed && opened.permit?.idempotencyKey);
    assert.equal(opened.permit.approvalId, asked.approval.id);
    const again = await sidecar.consume(asked.consumeToken, call, first);
    assert(again.replayed);
    assert.deepEqual(again.permit, opened.permit);
    assert.equal(await sidecar.state(asked.approval), "CONSUMED");
    const second = sidecar.consume(asked.consumeToken, call, attempt());
    const refusal = await refused(second, Code.FAILED_PRECONDITION, "APPROVAL_CONSUMED");
    assert.equal(refusal.metadata["decided_by"], "pat");
    const other = invocation();
    const reused = sidecar.consume((await sidecar.approved(other)).consumeToken, other, first);
    await refused(reused, Code.FAILED_PRECONDITION, "ATTEMPT_ID_REUSED");
    assert(!(await sidecar.ask(call)).existing, "a used approval answers no new question");
  },

  async "of many who try at once one passes"(sidecar) {
    const call = invocation();
    const token = (await sidecar.approved(call)).consumeToken;
    const tries = Array.from({ length: 64 }, () => sidecar.consume(token, call, attempt()));
    let permits = 0;
    for (const tried of await Promise.allSettled(tries)) {
      if (tried.status === "fulfilled") {
        permits += 1;
      } else {
        await refused(Promise.reject(tried.reason), Code.FAILED_PRECONDITION, "APPROVAL_CONSUMED");
      }
    }
    assert.equal(permits, 1);
  },

  async "a call that was given up is made again with the same ids"(sidecar) {
    // Before anything was sent, and while it may be under way.
    for (const within_ms of [-1, 1]) {
      const call = invocation();
      const asked = await sidecar.approved(call);
      const request = consumption(asked.consumeToken, call, attempt());
      const answered = sidecar.agent.agent.consume(request, within_ms);
      const code = await answered.then(() => Code.OK).catch((error: { code: Code }) => error.code);
      assert(code === Code.OK || code === Code.DEADLINE_EXCEEDED, Code[code]);
      assert.equal((await sidecar.agent.agent.consume(request)).permit?.approvalId, asked.approval.id);
    }
    // And by hand.
    const call = invocation();
    const asked = await sidecar.approved(call);
    const request = consumption(asked.consumeToken, call, attempt());
    const code = await new Promise((resolve) => {
      const options = { deadline: deadline() };
      const under_way = sidecar.agent.clients.agent.consume(request, sidecar.agent.metadata, options, (error) =>
        resolve(error?.code),
      );
      setImmediate(() => under_way.cancel());
    });
    assert(code === undefined || code === Code.CANCELLED, String(code));
    const permit = given((await sidecar.agent.agent.consume(request)).permit);
    assert.deepEqual((await sidecar.agent.agent.consume(request)).permit, permit);
  },

  async "without a token only what is allowed passes"(sidecar) {
    const read = invocation({}, { action: "GMAIL_FETCH_EMAILS" });
    const opened = await sidecar.consume("", read, attempt());
    assert.equal(opened.decision, Decision.DECISION_ALLOW);
    assert(opened.permit?.executionId && opened.permit.reportBy && opened.permit.approvalId === "");
    const write = sidecar.consume("", invocation(), attempt());
    await refused(write, Code.FAILED_PRECONDITION, "APPROVAL_REQUIRED");
    const admin = sidecar.consume("", invocation(undefined, { action: "GMAIL_DELETE_EMAIL" }), attempt());
    const refusal = await refused(admin, Code.PERMISSION_DENIED, "POLICY_DENIED");
    assert.equal(refusal.metadata["policy_reason"], "SCOPE_EXCEEDS_CEILING");
  },
};
