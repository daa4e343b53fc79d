// A client of the sidecar: its doors, each with its caller's credentials, refusals read as a client reads them, and the
// few steps that most chapters of the story take.

import { strict as assert } from "node:assert";
import { randomUUID } from "node:crypto";
import { Metadata, credentials, status as Code } from "@grpc/grpc-js";
import type { CallOptions, Client, ClientUnaryCall, ServiceError } from "@grpc/grpc-js";
import { BadRequest, ErrorInfo } from "../gen/google/rpc/error_details.js";
import { Status } from "../gen/google/rpc/status.js";
import type { Timestamp } from "../gen/google/protobuf/timestamp.js";
import {
  AgentServiceClient,
  AgentServiceGetApprovalRequest,
  ConsumeRequest,
  EvaluateRequest,
  RequestApprovalRequest,
} from "../gen/countersign/v1/agent_service.js";
import type { ConsumeResponse, RequestApprovalResponse } from "../gen/countersign/v1/agent_service.js";
import { ApprovalState, Verdict, approvalStateToJSON } from "../gen/countersign/v1/approval.js";
import type { Approval } from "../gen/countersign/v1/approval.js";
import { ApproverServiceClient, DecideRequest } from "../gen/countersign/v1/approver_service.js";
import { Invocation } from "../gen/countersign/v1/invocation.js";
import { ListAuditRecordsRequest, OperatorServiceClient } from "../gen/countersign/v1/operator_service.js";
import type { AuditRecord } from "../gen/countersign/v1/operator_service.js";

export { Code };
export const DOMAIN = "countersign.v1";
// A call that takes longer than this hangs.
const DEADLINE_MS = 20_000;

type Answered<A> = (error: ServiceError | null, answer: A) => void;

/** A client's unary RPCs, each answered by a promise. */
export type Promised<C> = {
  [Rpc in keyof C as C[Rpc] extends (...call: never) => ClientUnaryCall ? Rpc : never]: C[Rpc] extends (
    request: infer Q,
    metadata: Metadata,
    options: Partial<CallOptions>,
    answered: Answered<infer A>,
  ) => ClientUnaryCall
    ? (request: Q, within_ms?: number) => Promise<A>
    : never;
};

function promised<C extends Client>(client: C, metadata: Metadata): Promised<C> {
  const get = (_: C, rpc: string) => (request: unknown, within_ms?: number) =>
    new Promise((resolve, reject) => {
      const call = client[rpc as keyof C] as (...call: unknown[]) => ClientUnaryCall;
      const answered: Answered<unknown> = (error, answer) => (error === null ? resolve(answer) : reject(error));
      call.call(client, request, metadata, { deadline: deadline(within_ms) }, answered);
    });
  return new Proxy(client, { get } as ProxyHandler<C>) as unknown as Promised<C>;
}

/** The moment at which a call that begins now is given up. */
export function deadline(within_ms = DEADLINE_MS): Date {
  return new Date(Date.now() + within_ms);
}

/** Every service of the sidecar at one address, called with one token (or none). */
export class Doors {
  /** The clients as they were generated, for streams and for calls that are cancelled. */
  readonly clients: { agent: AgentServiceClient; approver: ApproverServiceClient; operator: OperatorServiceClient };
  readonly metadata = new Metadata();
  readonly agent: Promised<AgentServiceClient>;
  readonly approver: Promised<ApproverServiceClient>;
  readonly operator: Promised<OperatorServiceClient>;

  constructor(address: string, token?: string) {
    if (token !== undefined) {
      this.metadata.set("authorization", `Bearer ${token}`);
    }
    const plaintext = credentials.createInsecure();
    this.clients = {
      agent: new AgentServiceClient(address, plaintext),
      approver: new ApproverServiceClient(address, plaintext),
      operator: new OperatorServiceClient(address, plaintext),
    };
    this.agent = promised(this.clients.agent, this.metadata);
    this.approver = promised(this.clients.approver, this.metadata);
    this.operator = promised(this.clients.operator, this.metadata);
  }

  close(): void {
    Object.values(this.clients).forEach((client) => client.close());
  }
}

/** A refused call: its code, and what `google.rpc.Status` in the trailers says about it. */
export interface Refusal {
  code: Code;
  reason: string;
  message: string;
  metadata: Record<string, string>;
  /** The violated fields of a `google.rpc.BadRequest`, in order. */
  fields: string[];
}

/** Reads `grpc-status-details-bin`, the binary trailer with a `google.rpc.Status`. */
export function readRefusal(error: unknown): Refusal {
  assert(error instanceof Error && "code" in error && "details" in error && "metadata" in error, String(error));
  const { code, details, metadata } = error as ServiceError;
  const [packed, ...more] = metadata.get("grpc-status-details-bin");
  assert(packed instanceof Buffer && more.length === 0, `a refusal without details: ${code}: ${details}`);
  const status = Status.decode(packed);
  assert.deepEqual([status.code, status.message], [code, details], "one refusal inside, another outside");
  const kind = (name: string) =>
    status.details.filter((detail) => detail.typeUrl.endsWith(`/google.rpc.${name}`)).map((detail) => detail.value);
  const infos = kind("ErrorInfo").map((value) => ErrorInfo.decode(value));
  const fields = kind("BadRequest").flatMap((value) => BadRequest.decode(value).fieldViolations);
  const [info] = infos;
  assert(info !== undefined && infos.length === 1, `${infos.length} ErrorInfos`);
  assert.equal(info.domain, DOMAIN);
  return {
    code,
    reason: info.reason,
    message: status.message,
    metadata: info.metadata,
    fields: fields.map((violation) => violation.field),
  };
}

/** Waits for a call that must be refused with this code and reason; an answer is a failure. */
export async function refused(call: Promise<unknown>, code: Code, reason: string): Promise<Refusal> {
  let answer;
  try {
    answer = await call;
  } catch (error) {
    const refusal = readRefusal(error);
    assert.deepEqual([Code[refusal.code], refusal.reason], [Code[code], reason], refusal.message);
    return refusal;
  }
  assert.fail(`wanted ${Code[code]} ${reason}, but it was answered: ${Object.keys(answer as object)}`);
}

/** An email to a colleague, unless told otherwise. Arguments are JSON text, or a value to be written as JSON. */
export function invocation(args?: unknown, changed: Partial<Invocation> = {}): Invocation {
  const written = args ?? { recipient_email: "kim@acme.com", subject: "Lunch", body: "At noon?" };
  return Invocation.create({
    principal: "pat",
    agent: "assistant",
    conversation: `conversation-${randomUUID()}`,
    connector: "gmail",
    account: "work-mailbox-a",
    connection: "connection-1",
    action: "GMAIL_SEND_EMAIL",
    argumentsJson: typeof written === "string" ? written : JSON.stringify(written),
    objective: { transcript: "transcript-1", id: "objective-1", revision: 3n },
    ...changed,
  });
}

/** The same invocation, but for these fields. */
export function but(original: Invocation, changed: Partial<Invocation>): Invocation {
  return { ...original, ...changed };
}

/** A new attempt's id. */
export const attempt = (): string => randomUUID();

/** Microseconds since 1970, none of them lost. */
export function micros(time: Timestamp | undefined): bigint {
  assert(time !== undefined, "a time that is not there");
  return time.seconds * 1_000_000n + BigInt(time.nanos) / 1_000n;
}

/** What must be there. */
export function given<T>(value: T | undefined, what = "it"): T {
  assert(value !== undefined, `${what} is not there`);
  return value;
}

export const evaluation = (call: Invocation, explain = false): EvaluateRequest =>
  EvaluateRequest.create({ invocation: call, explain });

export const consumption = (consumeToken: string, call: Invocation, attemptId: string): ConsumeRequest =>
  ConsumeRequest.create({ consumeToken, attemptId, invocation: call });

/** An approval that was asked for, with its token. */
export interface Asked extends RequestApprovalResponse {
  approval: Approval;
}

/** A running sidecar, and a client of each role. */
export class Sidecar {
  readonly agent: Doors;
  readonly people: Doors;
  readonly operator: Doors;
  readonly nobody: Doors;
  readonly stranger: Doors;

  constructor(
    readonly address: string,
    readonly healthAddress: string,
    readonly tokens: { agent: string; approver: string; operator: string },
  ) {
    this.agent = new Doors(address, tokens.agent);
    this.people = new Doors(address, tokens.approver);
    this.operator = new Doors(address, tokens.operator);
    this.nobody = new Doors(address);
    this.stranger = new Doors(address, `cs_${"0".repeat(64)}`);
  }

  close(): void {
    [this.agent, this.people, this.operator, this.nobody, this.stranger].forEach((doors) => doors.close());
  }

  async ask(call: Invocation, more: Partial<RequestApprovalRequest> = {}): Promise<Asked> {
    const request: RequestApprovalRequest = { ...RequestApprovalRequest.create({ invocation: call }), ...more };
    const asked = await this.agent.agent.requestApproval(request);
    return { ...asked, approval: given(asked.approval, "the approval") };
  }

  async decide(approvalId: string, principal: string, verdict: Verdict, reason = ""): Promise<Approval> {
    const request = DecideRequest.create({ approvalId, principal, verdict, reason });
    return given((await this.people.approver.decide(request)).approval);
  }

  /** Asks, and lets the owner approve. */
  async approved(call: Invocation): Promise<Asked> {
    const asked = await this.ask(call);
    const answered = await this.decide(asked.approval.id, call.principal, Verdict.VERDICT_APPROVE);
    assert.equal(answered.state, ApprovalState.APPROVAL_STATE_APPROVED);
    return asked;
  }

  consume(token: string, call: Invocation, attemptId: string): Promise<ConsumeResponse> {
    return this.agent.agent.consume(consumption(token, call, attemptId));
  }

  /** As the agent sees it now. */
  async look(approval: Approval): Promise<Approval> {
    const { principal, agent, id: approvalId } = approval;
    const request = AgentServiceGetApprovalRequest.create({ principal, agent, approvalId });
    return given((await this.agent.agent.getApproval(request)).approval);
  }

  async state(approval: Approval): Promise<string> {
    return approvalStateToJSON((await this.look(approval)).state).replace("APPROVAL_STATE_", "");
  }

  /** Every audit record, oldest first, read in pages of three. */
  async records(which: Partial<ListAuditRecordsRequest> = {}): Promise<AuditRecord[]> {
    const found: AuditRecord[] = [];
    let pageToken = "";
    do {
      const request = ListAuditRecordsRequest.create({ pageSize: 3, pageToken, ...which });
      const page = await this.operator.operator.listAuditRecords(request);
      assert(page.records.length <= 3);
      found.push(...page.records);
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    return found.reverse();
  }
}

/** Chapters of the story, in the order in which they are written; a chapter's name is what it claims. */
export type Chapters = Record<string, (sidecar: Sidecar) => Promise<void>>;
