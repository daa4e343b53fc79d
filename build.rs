//! Compiles the protos without a protoc: protox reads them, tonic and prost write the code, and the descriptor set is
//! kept for reflection.

use prost::Message;
use std::path::PathBuf;

const PROTOS: [&str; 3] = [
    "proto/countersign/v1/agent_service.proto",
    "proto/countersign/v1/approver_service.proto",
    "proto/countersign/v1/operator_service.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(PROTOS, ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // Arguments, previews, notes and tokens are payloads or secrets: these messages must not print themselves.
    let mut config = tonic_prost_build::Config::new();
    config.skip_debug([
        "countersign.v1.Invocation",
        "countersign.v1.Approval",
        "countersign.v1.RequestApprovalRequest",
        "countersign.v1.RequestApprovalResponse",
        "countersign.v1.ConsumeRequest",
        "countersign.v1.Permit",
        "countersign.v1.CancelApprovalRequest",
        "countersign.v1.DecideRequest",
        "countersign.v1.RevokeApprovalRequest",
        "countersign.v1.PersonDecision",
        "countersign.v1.AuditRecord",
        "countersign.v1.ReportOutcomeRequest",
        "countersign.v1.Execution",
        "countersign.v1.Wait",
        "countersign.v1.OpenWaitRequest",
        "countersign.v1.CloseWaitRequest",
        "countersign.v1.GetApprovalArgumentsResponse",
        "countersign.v1.AuditEntry",
        "countersign.v1.UnsealedAuditRecord",
    ]);
    tonic_prost_build::configure()
        .build_client(true)
        .build_server(true)
        .compile_fds_with_config(descriptors, config)?;
    Ok(())
}
