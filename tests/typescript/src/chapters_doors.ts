// Who is let in, and where.

import { strict as assert } from "node:assert";
import { Metadata, credentials } from "@grpc/grpc-js";
import type { Client, ServiceDefinition } from "@grpc/grpc-js";
import { AgentServiceService } from "../gen/countersign/v1/agent_service.js";
import { ApproverServiceService } from "../gen/countersign/v1/approver_service.js";
import { OperatorServiceService } from "../gen/countersign/v1/operator_service.js";
import { HealthCheckRequest, HealthCheckResponse_ServingStatus, HealthClient } from "../gen/grpc/health/v1/health.js";
import type { HealthCheckResponse } from "../gen/grpc/health/v1/health.js";
import { ServerReflectionClient, ServerReflectionRequest } from "../gen/grpc/reflection/v1/reflection_v1.js";
import type { ServerReflectionResponse } from "../gen/grpc/reflection/v1/reflection_v1.js";
import { Code, Doors, deadline, evaluation, invocation, refused } from "./client.js";
import type { Chapters } from "./client.js";

type Door = "agent" | "approver" | "operator";
const SERVICES: Record<Door, ServiceDefinition> = {
  agent: AgentServiceService,
  approver: ApproverServiceService,
  operator: OperatorServiceService,
};
const NAMES = ["AgentService", "ApproverService", "OperatorService"].map((name) => `countersign.v1.${name}`);

/** Each RPC that the contract declares of a service, called with an empty request; a stream by what it begins with. */
function* everyRpc(doors: Doors, door: Door): Generator<[string, Promise<unknown>]> {
  const client: Client = doors.clients[door];
  const rpcs = Object.entries(SERVICES[door]);
  assert(rpcs.length > 0, door);
  const nothing = () => Buffer.alloc(0);
  for (const [name, { path, responseDeserialize: read, responseStream }] of rpcs) {
    const options = { deadline: deadline() };
    const call = new Promise((resolve, reject) => {
      if (responseStream) {
        const stream = client.makeServerStreamRequest(path, nothing, read, null, doors.metadata, options);
        stream.on("data", resolve).on("end", resolve).on("error", reject);
      } else {
        client.makeUnaryRequest(path, nothing, read, null, doors.metadata, options, (error, answer) =>
          error === null ? resolve(answer) : reject(error),
        );
      }
    });
    yield [name, call];
  }
}

export const chapters: Chapters = {
  async "health says serving without credentials"(sidecar) {
    for (const address of [sidecar.address, sidecar.healthAddress]) {
      const health = new HealthClient(address, credentials.createInsecure());
      for (const service of ["", "liveness", ...NAMES]) {
        const answer = await new Promise<HealthCheckResponse>((resolve, reject) => {
          const request = HealthCheckRequest.create({ service });
          health.check(request, new Metadata(), { deadline: deadline() }, (error, answer) =>
            error === null ? resolve(answer) : reject(error),
          );
        });
        assert.equal(answer.status, HealthCheckResponse_ServingStatus.SERVING, `${address} ${service}`);
      }
      health.close();
    }
  },

  async "the health listener opens no door"(sidecar) {
    const doors = new Doors(sidecar.healthAddress, sidecar.tokens.agent);
    await assert.rejects(doors.agent.evaluate(evaluation(invocation())), { code: Code.UNIMPLEMENTED });
    doors.close();
  },

  async "reflection lists the services to new clients"(sidecar) {
    const reflection = new ServerReflectionClient(sidecar.address, credentials.createInsecure());
    const stream = reflection.serverReflectionInfo(new Metadata(), { deadline: deadline() });
    stream.write(ServerReflectionRequest.create({ listServices: "" }));
    stream.end();
    const answers: ServerReflectionResponse[] = [];
    for await (const answer of stream) {
      answers.push(answer as ServerReflectionResponse);
    }
    const listed = answers.flatMap((answer) => answer.listServicesResponse?.service ?? []).map(({ name }) => name);
    for (const name of [...NAMES, "grpc.health.v1.Health"]) {
      assert(listed.includes(name), `${name} is not among ${listed}`);
    }
    reflection.close();
  },

  async "every rpc of every door wants credentials"(sidecar) {
    for (const door of ["agent", "approver", "operator"] as const) {
      for (const [, call] of everyRpc(sidecar.nobody, door)) {
        await refused(call, Code.UNAUTHENTICATED, "CREDENTIALS_MISSING");
      }
      for (const [, call] of everyRpc(sidecar.stranger, door)) {
        await refused(call, Code.UNAUTHENTICATED, "CREDENTIALS_INVALID");
      }
    }
  },

  async "no agent opens the approvers or the operators door"(sidecar) {
    for (const needed of ["approver", "operator"] as const) {
      for (const [name, call] of everyRpc(sidecar.agent, needed)) {
        const refusal = await refused(call, Code.PERMISSION_DENIED, "ROLE_NOT_ALLOWED");
        assert.deepEqual(refusal.metadata, { role: "agent", needed_role: needed }, name);
      }
    }
  },

  async "no approver and no operator opens another door"(sidecar) {
    for (const [doors, closed] of [
      [sidecar.people, ["agent", "operator"]],
      [sidecar.operator, ["agent", "approver"]],
    ] as const) {
      for (const door of closed) {
        for (const [, call] of everyRpc(doors, door)) {
          await refused(call, Code.PERMISSION_DENIED, "ROLE_NOT_ALLOWED");
        }
      }
    }
  },
};
