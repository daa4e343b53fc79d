//! Which methods there are, from the descriptors that the protos are compiled to.

use crate::metrics::Method;
use prost::Message as _;
use prost_types::FileDescriptorSet;

/// Every method of these encoded descriptor sets.
///
/// # Errors
/// One of them is no descriptor set.
pub fn methods(sets: &[&[u8]]) -> Result<Vec<Method>, prost::DecodeError> {
    let mut methods = Vec::new();
    for set in sets {
        for file in FileDescriptorSet::decode(*set)?.file {
            for service in &file.service {
                let of_service = service.method.iter().map(|method| Method {
                    name: format!("{}.{}/{}", file.package(), service.name(), method.name()),
                    streams: method.server_streaming(),
                });
                methods.extend(of_service);
            }
        }
    }
    Ok(methods)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::DESCRIPTORS;

    #[test]
    fn every_method_of_ours_is_there_by_the_name_that_its_path_has() {
        let methods = methods(&[DESCRIPTORS]).unwrap();
        let names: Vec<&str> = methods.iter().map(|method| method.name.as_str()).collect();
        assert!(names.contains(&"countersign.v1.AgentService/Evaluate"), "{names:?}");
        assert!(names.contains(&"countersign.v1.OperatorService/ListAuditRecords"), "{names:?}");
        assert!(names.len() > 10, "{names:?}");
    }
}
