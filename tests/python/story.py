"""The whole story of an approval, told by a Python client against a running sidecar.

An agent's process, a chat backend that speaks for people, and an operator each call with a token of their own, through
stubs that grpcio-tools generated from `proto/`. The sidecar serves `deploy/policy/gmail.yaml`. Each function of the
`chapters_….py` that takes a sidecar is a chapter, and its name is what it claims; the first that does not hold ends the
story with exit code 1. `tests/python_story.rs` runs this; by hand:

    python -m grpc_tools.protoc -I proto --python_out GEN --grpc_python_out GEN proto/countersign/v1/*.proto
    countersign serve --dev
    PYTHONPATH=GEN python tests/python/story.py --address 127.0.0.1:7400 --health-address 127.0.0.1:7401 \
        --agent-token .countersign-dev/agent.token --approver-token .countersign-dev/approver.token \
        --operator-token .countersign-dev/operator.token
"""

from __future__ import annotations

import argparse
import inspect
import pathlib
import sys
import traceback

import chapters_approval
import chapters_consume
import chapters_doors
import chapters_outcome
import chapters_policy
import chapters_waiting
from client import Doors, Sidecar


def chapters():
    """Every chapter, in the order in which it is written."""
    for part in (chapters_doors, chapters_policy, chapters_approval, chapters_consume, chapters_outcome, chapters_waiting):
        functions = [function for _, function in inspect.getmembers(part, inspect.isfunction)]
        written = [function for function in functions if function.__module__ == part.__name__]
        told = [function for function in written if list(inspect.signature(function).parameters) == ["sidecar"]]
        yield from sorted(told, key=lambda function: function.__code__.co_firstlineno)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", required=True)
    parser.add_argument("--health-address", required=True)
    for role in ("agent", "approver", "operator"):
        parser.add_argument(f"--{role}-token", required=True, type=pathlib.Path, metavar="FILE")
    told = parser.parse_args()
    story = list(chapters())
    doors = {
        "agent": Doors(told.address, told.agent_token.read_text().strip()),
        "people": Doors(told.address, told.approver_token.read_text().strip()),
        "operator": Doors(told.address, told.operator_token.read_text().strip()),
        "nobody": Doors(told.address, None),
        "stranger": Doors(told.address, "cs_" + "0" * 64),
    }
    sidecar = Sidecar(
        address=told.address,
        health_address=told.health_address,
        agent_token=told.agent_token.read_text().strip(),
        **doors,
    )
    try:
        for chapter in story:
            name = chapter.__name__.replace("_", " ")
            try:
                chapter(sidecar)
            except Exception:
                traceback.print_exc(file=sys.stdout)
                print(f"does not hold: {name}")
                return 1
            print(f"holds: {name}", flush=True)
    finally:
        for door in doors.values():
            door.close()
    print(f"the story holds: {len(story)} chapters")
    return 0


if __name__ == "__main__":
    sys.exit(main())
