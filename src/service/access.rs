//! What each method is for: one role, and one kind of bounds. The guard looks here, by the method that was resolved; what has
//! no entry is refused for everybody.

use crate::auth::Role;

/// What a caller's bounds are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// Principal and agent of the invocation that the request carries: out of them is `CALLER_OUT_OF_BOUNDS`.
    Invocation,
    /// The same of each item; an item out of them is refused by itself.
    Invocations,
    /// Principal and agent that the request names beside a record's id: out of them is as if it were not there.
    Record,
    /// Principal and agent for which the request begins something of its own.
    Pair,
    /// The person that the caller is or asserts.
    Person,
    /// None: the caller sees all of it.
    Everything,
}

/// Who may call a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its path.
    pub path: &'static str,
    /// The role that it is for.
    pub role: Role,
    /// What the caller's bounds are compared with.
    pub bounds: Bounds,
}

const fn of(path: &'static str, role: Role, bounds: Bounds) -> Access {
    Access { path, role, bounds }
}

/// Every method of ours, in the order of the paths.
pub const ACCESS: &[Access] = &[
    of("/countersign.v1.AgentService/BatchEvaluate", Role::Agent, Bounds::Invocations),
    of("/countersign.v1.AgentService/CancelApproval", Role::Agent, Bounds::Record),
    of("/countersign.v1.AgentService/CloseWait", Role::Agent, Bounds::Record),
    of("/countersign.v1.AgentService/Consume", Role::Agent, Bounds::Invocation),
    of("/countersign.v1.AgentService/Evaluate", Role::Agent, Bounds::Invocation),
    of("/countersign.v1.AgentService/GetApproval", Role::Agent, Bounds::Record),
    of("/countersign.v1.AgentService/GetWait", Role::Agent, Bounds::Record),
    of("/countersign.v1.AgentService/OpenWait", Role::Agent, Bounds::Pair),
    of("/countersign.v1.AgentService/ReportOutcome", Role::Agent, Bounds::Record),
    of("/countersign.v1.AgentService/RequestApproval", Role::Agent, Bounds::Invocation),
    of("/countersign.v1.AgentService/ResumeWait", Role::Agent, Bounds::Record),
    of("/countersign.v1.AgentService/WatchApproval", Role::Agent, Bounds::Record),
    of("/countersign.v1.ApproverService/Decide", Role::Approver, Bounds::Person),
    of("/countersign.v1.ApproverService/GetApproval", Role::Approver, Bounds::Person),
    of("/countersign.v1.ApproverService/GetApprovalArguments", Role::Approver, Bounds::Person),
    of("/countersign.v1.ApproverService/ListApprovals", Role::Approver, Bounds::Person),
    of("/countersign.v1.ApproverService/RevokeApproval", Role::Approver, Bounds::Person),
    of("/countersign.v1.ApproverService/WatchApprovals", Role::Approver, Bounds::Person),
    of("/countersign.v1.OperatorService/ExportAudit", Role::Operator, Bounds::Everything),
    of("/countersign.v1.OperatorService/GetAuditCheckpoint", Role::Operator, Bounds::Everything),
    of("/countersign.v1.OperatorService/GetPolicy", Role::Operator, Bounds::Everything),
    of("/countersign.v1.OperatorService/ListAuditRecords", Role::Operator, Bounds::Everything),
    of("/countersign.v1.OperatorService/ListExecutions", Role::Operator, Bounds::Everything),
    of("/countersign.v1.OperatorService/ProveAuditConsistency", Role::Operator, Bounds::Everything),
    of("/countersign.v1.OperatorService/ProveAuditRecord", Role::Operator, Bounds::Everything),
];

/// The entry of the method at this path, exactly as the router resolves it.
pub(super) fn at(path: &str) -> Option<&'static Access> {
    ACCESS.binary_search_by(|access| access.path.cmp(path)).ok().and_then(|index| ACCESS.get(index))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    #[test]
    fn every_method_of_the_descriptors_has_an_entry_and_nothing_else_has() {
        let set = prost_types::FileDescriptorSet::decode(crate::proto::DESCRIPTORS).unwrap();
        let mut paths = Vec::new();
        for file in set.file.iter().filter(|file| file.package().starts_with("countersign.")) {
            for service in &file.service {
                let methods = service.method.iter();
                paths.extend(methods.map(|one| format!("/{}.{}/{}", file.package(), service.name(), one.name())));
            }
        }
        paths.sort();
        assert_eq!(paths, ACCESS.iter().map(|access| access.path).collect::<Vec<_>>());
        assert!(paths.iter().all(|path| at(path).is_some_and(|access| access.path == path)));
    }

    #[test]
    fn a_service_is_a_role() {
        for access in ACCESS {
            let role = match access.path.split('/').nth(1).unwrap() {
                "countersign.v1.AgentService" => Role::Agent,
                "countersign.v1.ApproverService" => Role::Approver,
                "countersign.v1.OperatorService" => Role::Operator,
                other => panic!("{other} has no role here"),
            };
            assert_eq!(access.role, role, "{}", access.path);
        }
    }

    #[test]
    fn what_is_not_spelt_exactly_has_no_entry() {
        let path = "/countersign.v1.ApproverService/Decide";
        assert!(at(path).is_some());
        for other in ["", "/", &path[1..], &format!("/{path}"), &format!("{path}/"), &path.to_lowercase()] {
            assert_eq!(at(other), None, "{other:?}");
        }
    }
}
