// The whole story of an approval, told by a TypeScript client against a running sidecar.
//
// An agent's process, a chat backend that speaks for people, and an operator each call with a token of their own,
// through stubs that ts-proto generated from `proto/` for @grpc/grpc-js. The sidecar serves `deploy/policy/gmail.yaml`.
// Each file of chapters exports them by name; the first that does not hold ends the story with exit code 1.
// `tests/typescript_story.rs` runs this: it generates the stubs into `gen/`, compiles both with tsc, and starts the
// sidecar.

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import * as approval from "./chapters_approval.js";
import * as consume from "./chapters_consume.js";
import * as doors from "./chapters_doors.js";
import * as outcome from "./chapters_outcome.js";
import * as policy from "./chapters_policy.js";
import * as values from "./chapters_values.js";
import * as waiting from "./chapters_waiting.js";
import { Sidecar } from "./client.js";

const PARTS = [doors, policy, values, approval, consume, outcome, waiting];

async function main(): Promise<number> {
  const option = { type: "string" } as const;
  const { values: told } = parseArgs({
    options: {
      address: option,
      "health-address": option,
      "agent-token": option,
      "approver-token": option,
      "operator-token": option,
    },
  });
  const said = (name: keyof typeof told): string => {
    const value = told[name];
    if (value === undefined) {
      throw new Error(`--${name} is not given`);
    }
    return value;
  };
  const token = (role: "agent" | "approver" | "operator") => readFileSync(said(`${role}-token`), "utf8").trim();
  const tokens = { agent: token("agent"), approver: token("approver"), operator: token("operator") };
  const sidecar = new Sidecar(said("address"), said("health-address"), tokens);
  const story = PARTS.flatMap((part) => Object.entries(part.chapters));
  try {
    for (const [name, chapter] of story) {
      try {
        await chapter(sidecar);
      } catch (error) {
        console.log(error);
        console.log(`does not hold: ${name}`);
        return 1;
      }
      console.log(`holds: ${name}`);
    }
  } finally {
    sidecar.close();
  }
  console.log(`the story holds: ${story.length} chapters`);
  return 0;
}

process.exitCode = await main();
