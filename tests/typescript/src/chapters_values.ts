// What an invocation's values are: text as it is written, every digit of it, and no value that could be read two ways.

import { strict as assert } from "node:assert";
import type { Objective } from "../gen/countersign/v1/invocation.js";
import { Code, attempt, but, consumption, evaluation, given, invocation, refused } from "./client.js";
import type { Chapters, Sidecar } from "./client.js";

async function fingerprint(sidecar: Sidecar, args: unknown, objective?: Objective): Promise<string> {
  const call = invocation(args);
  const asked = evaluation(objective === undefined ? call : but(call, { objective }));
  return (await sidecar.agent.agent.evaluate(asked)).fingerprint;
}

export const chapters: Chapters = {
  async "arguments that could be read two ways are refused"(sidecar) {
    for (const text of [
      '{"to": "a", "t\\u006f": "b"}',
      '{"to": "\\ud800"}',
      '{"to": 1e999}',
      '{"to": NaN}',
      '{"to": 1} {}',
      "[]",
      "null",
    ]) {
      const asked = sidecar.agent.agent.evaluate(evaluation(but(invocation(), { argumentsJson: text })));
      const refusal = await refused(asked, Code.INVALID_ARGUMENT, "INVALID_ARGUMENTS_JSON");
      assert.deepEqual(refusal.fields, ["invocation.arguments_json"], text);
    }
  },

  async "names that hide something are refused with their fields"(sidecar) {
    for (const hidden of [" pat", "pat\u202e", "p\u0000at", "\ufeffpat", "p".repeat(257)]) {
      const asked = sidecar.agent.agent.evaluate(evaluation(invocation(undefined, { principal: hidden, action: "" })));
      const refusal = await refused(asked, Code.INVALID_ARGUMENT, "INVALID_REQUEST");
      assert.deepEqual(refusal.fields, ["invocation.principal", "invocation.action"], JSON.stringify(hidden));
    }
  },

  async "what is too large is refused with a reason"(sidecar) {
    const large = evaluation(invocation({ body: "a".repeat(256 * 1024) }));
    await refused(sidecar.agent.agent.evaluate(large), Code.INVALID_ARGUMENT, "INVALID_ARGUMENTS_JSON");
    const larger = evaluation(invocation({ body: "a".repeat(5 * 1024 * 1024) }));
    await refused(sidecar.agent.agent.evaluate(larger), Code.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE");
  },

  async "spelling is no difference and every digit is"(sidecar) {
    const one = await fingerprint(sidecar, '{"amount": 1, "to": "kim@acme.com"}');
    assert.match(one, /^v1:[0-9a-f]{64}$/);
    for (const same of ['{"to":"kim@acme.com","amount":1.0}', '{"t\\u006f": "kim@acme.com", "amount": 1e0}']) {
      assert.equal(await fingerprint(sidecar, same), one, same);
    }
    for (const [left, right] of [
      // As numbers of this language each pair would be one.
      ['{"amount": 9007199254740993}', '{"amount": 9007199254740992}'],
      ['{"amount": 1e400}', '{"amount": 1e399}'],
      ['{"amount": 0.1}', '{"amount": 0.1000000000000000055511151231257827}'],
      // As objects of this language these would be one.
      ['{"__proto__": {"admin": true}}', "{}"],
      ['{"name": "é"}', '{"name": "e\u0301"}'],
      ['{"name": "😀"}', '{"name": "😃"}'],
    ] as const) {
      assert.notEqual(await fingerprint(sidecar, left), await fingerprint(sidecar, right), left);
    }
    const escaped = await fingerprint(sidecar, '{"name": "\\ud83d\\ude00"}');
    assert.equal(escaped, await fingerprint(sidecar, '{"name": "😀"}'));
  },

  async "a number that this language cannot hold is shown and compared whole"(sidecar) {
    const text = '{"recipient_email": "kim@acme.com", "amount": 9007199254740993, "most": 1e400}';
    const call = invocation(text);
    const asked = await sidecar.approved(call);
    assert.match(asked.approval.previewJson, /9007199254740993\b/);
    // What a client sends that took the arguments apart and wrote them again.
    const rewritten = but(call, { argumentsJson: JSON.stringify(JSON.parse(text)) });
    const request = consumption(asked.consumeToken, rewritten, attempt());
    await refused(sidecar.agent.agent.consume(request), Code.FAILED_PRECONDITION, "ARGUMENTS_CHANGED");
    assert.equal((await sidecar.consume(asked.consumeToken, call, attempt())).permit?.approvalId, asked.approval.id);
  },

  async "a 64-bit field loses nothing on its way there and back"(sidecar) {
    const objective = { transcript: "transcript-1", id: "objective-1", revision: 9007199254740991n };
    const call = invocation(undefined, { objective });
    const asked = await sidecar.approved(call);
    assert.equal(given(asked.approval.objective).revision, 9007199254740991n);
    assert.equal((await sidecar.look(asked.approval)).version, asked.approval.version + 1n);
    const near = but(call, { objective: { ...objective, revision: 9007199254740990n } });
    const request = consumption(asked.consumeToken, near, attempt());
    await refused(sidecar.agent.agent.consume(request), Code.FAILED_PRECONDITION, "OBJECTIVE_CHANGED");
    assert((await sidecar.consume(asked.consumeToken, call, attempt())).permit);
    // What other languages would round on its way is refused instead.
    for (const revision of [9007199254740992n, 9007199254740993n, 18446744073709551615n]) {
      const rounded = but(call, { objective: { ...objective, revision } });
      const evaluated = sidecar.agent.agent.evaluate(evaluation(rounded));
      const refusal = await refused(evaluated, Code.INVALID_ARGUMENT, "INVALID_REQUEST");
      assert.deepEqual(refusal.fields, ["invocation.objective.revision"], String(revision));
    }
  },

  async "text of any script comes back as it was"(sidecar) {
    const principal = "zoë-日本-😀";
    const call = invocation({ recipient_email: "kim@acme.com", body: "مرحبا 👩‍👩‍👧 Ωmega" }, { principal });
    const asked = await sidecar.ask(call, { agentNote: "日本語 note 😀" });
    assert.deepEqual([asked.approval.principal, asked.approval.agentNote], [principal, "日本語 note 😀"]);
    assert.equal((await sidecar.look(asked.approval)).principal, principal);
  },
};
