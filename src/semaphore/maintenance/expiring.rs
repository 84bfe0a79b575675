//! Starts the last leases of permits that are to expire.

use std::sync::Arc;

use super::Done;
use crate::runtime::Deadline;
use crate::semaphore::core::{Core, Undelivered};

/// Starts the last leases. Failed calls are retried until the leases have expired.
pub(super) async fn let_expire(core: Arc<Core>, undelivered: Undelivered) -> Done {
    core.let_expire_all(undelivered, Deadline::after(core.until_leases_end())).await;
    Done::LetExpire
}
