//! Starts the last leases of permits that are left.

use std::sync::Arc;

use super::Done;
use crate::runtime::Deadline;
use crate::semaphore::core::{Core, Undelivered};

/// It goes on until the leases have ended anyway.
pub(super) async fn leave(core: Arc<Core>, undelivered: Undelivered) -> Done {
    core.leave_all(undelivered, Deadline::after(core.until_leases_end())).await;
    Done::Left
}
