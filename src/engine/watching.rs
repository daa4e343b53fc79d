//! Watching approvals. While anybody watches, one task (`hub`) hears what changed, reads each changed row once and hands
//! it on, however many watch; each watcher (`one` of one approval, `list` of a person's) has its own place in the order.

mod hub;
mod list;
mod one;
mod recently;
mod task;

pub(super) use hub::Hub;
pub use list::{ApprovalsWatch, Seen};
pub use one::ApprovalWatch;
