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

use tokio::sync::Semaphore;

/// First reads at once. Hundreds who watch begin anew at the same moment, when a sidecar was restarted: they wait for one
/// another here, and not for a reader of the store, which others need and do not wait for as long.
static FIRST_READS: Semaphore = Semaphore::const_new(2);
