// What the policy answers.

import { strict as assert } from "node:assert";
import { BatchEvaluateRequest } from "../gen/countersign/v1/agent_service.js";
import { CheckOutcome, Decision, Scope } from "../gen/countersign/v1/decision.js";
import { Code, evaluation, given, invocation, refused } from "./client.js";
import type { Chapters } from "./client.js";

const { CHECK_OUTCOME_DECIDED, CHECK_OUTCOME_NOT_REACHED, CHECK_OUTCOME_PASSED } = CheckOutcome;

export const chapters: Chapters = {
  async "reading is allowed and explained"(sidecar) {
    const call = invocation({ query: "from:kim" }, { action: "GMAIL_FETCH_EMAILS" });
    const answer = await sidecar.agent.agent.evaluate(evaluation(call, true));
    assert.deepEqual([answer.decision, answer.reason], [Decision.DECISION_ALLOW, "ALLOWED"]);
    assert.equal(answer.scope, Scope.SCOPE_READ);
    assert.equal(answer.requirement, undefined);
    assert.equal(answer.checks[0]?.name, "connector_known");
    const outcomes = answer.checks.map((check) => check.outcome);
    assert.equal(outcomes.pop(), CHECK_OUTCOME_DECIDED);
    assert.deepEqual(new Set(outcomes), new Set([CHECK_OUTCOME_PASSED]));
    assert.deepEqual((await sidecar.agent.agent.evaluate(evaluation(call))).checks, [], "not asked to explain");
  },

  async "what the policy rules out is denied as an answer"(sidecar) {
    for (const [changed, reason] of [
      [{ connector: "github" }, "CONNECTOR_UNKNOWN"],
      // What an object of this language has by itself is no name that anybody listed.
      [{ connector: "__proto__" }, "CONNECTOR_UNKNOWN"],
      [{ agent: "intruder" }, "AGENT_NOT_ALLOWED"],
      [{ account: "private-mailbox" }, "ACCOUNT_NOT_ALLOWED"],
      [{ account: "" }, "ACCOUNT_NOT_ALLOWED"],
      [{ action: "gmail_send_email" }, "ACTION_UNKNOWN"],
      [{ action: "constructor" }, "ACTION_UNKNOWN"],
      [{ action: "GMAIL_DELETE_EMAIL" }, "SCOPE_EXCEEDS_CEILING"],
      [{ action: "GMAIL_CREATE_EMAIL_DRAFT" }, "ACTION_NOT_CURATED"],
    ] as const) {
      const answer = await sidecar.agent.agent.evaluate(evaluation(invocation(undefined, changed), true));
      assert.deepEqual([answer.decision, answer.reason], [Decision.DECISION_DENY, reason]);
      const deciding = answer.checks.filter((check) => check.outcome === CHECK_OUTCOME_DECIDED);
      assert.equal(deciding.length, 1);
      const after = answer.checks.filter((check) => check.number > given(deciding[0]).number);
      assert.deepEqual(new Set(after.map((check) => check.outcome)), new Set([CHECK_OUTCOME_NOT_REACHED]));
    }
  },

  async "writing needs confirmation and says whose"(sidecar) {
    const inside = await sidecar.agent.agent.evaluate(evaluation(invocation()));
    assert.equal(inside.decision, Decision.DECISION_CONFIRMATION_REQUIRED);
    assert.equal(inside.reason, "CONFIRMATION_BY_MODE");
    const required = given(inside.requirement);
    assert.deepEqual(required.clauses.map((clause) => clause.anyOf), [["owner"]]);
    assert.equal(required.decideWithin?.seconds, 300n);
    const stranger = invocation({ recipient_email: "kim@elsewhere.example" });
    const outside = await sidecar.agent.agent.evaluate(evaluation(stranger));
    assert.equal(outside.reason, "CONFIRMATION_BY_RULE");
    assert.deepEqual(outside.rules.map((rule) => rule.name), ["outside-recipients"]);
    const clauses = given(outside.requirement).clauses.map((clause) => clause.anyOf.join());
    assert.deepEqual(clauses.sort(), ["group:finance", "owner"]);
  },

  async "a rule that cannot be evaluated asks and says so"(sidecar) {
    const answer = await sidecar.agent.agent.evaluate(evaluation(invocation({ subject: "To whom?" })));
    assert.equal(answer.reason, "CONFIRMATION_BY_RULE");
    assert(answer.rules[0]?.error);
  },

  async "a batch is answered in order each on its own"(sidecar) {
    const read = invocation({}, { action: "GMAIL_FETCH_EMAILS" });
    const twice = invocation('{"a": 1, "a": 2}');
    const batch = [read, invocation(), read, twice, invocation(undefined, { connector: "github" })];
    const requests = batch.map((call) => evaluation(call));
    const { results } = await sidecar.agent.agent.batchEvaluate(BatchEvaluateRequest.create({ requests }));
    assert.deepEqual(
      results.map(({ response, error }) => response?.reason ?? error?.reason),
      ["ALLOWED", "CONFIRMATION_BY_MODE", "ALLOWED", "INVALID_ARGUMENTS_JSON", "CONNECTOR_UNKNOWN"],
    );
    assert.equal(results[3]?.error?.code, Code.INVALID_ARGUMENT);
    assert.equal(results[0]?.response?.fingerprint, results[2]?.response?.fingerprint);
    const more = BatchEvaluateRequest.create({ requests: Array(101).fill(evaluation(read)) });
    await refused(sidecar.agent.agent.batchEvaluate(more), Code.INVALID_ARGUMENT, "INVALID_REQUEST");
  },
};
