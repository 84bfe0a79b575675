//! The wire protocol as types, without I/O and locks. `docs/protocol.md` describes the protocol.

mod group_inspection;
pub(crate) mod id;
mod inspection;
mod keys;
pub(crate) mod message;
mod replies;

pub use group_inspection::GroupInspection;
pub(crate) use inspection::InspectReply;
pub use inspection::{Holder, Inspection, Waiter};
pub(crate) use keys::{
    KEYS_WITHOUT_GROUPS, Keys, check_client_name, check_name, check_prefix, keys,
    may_be_in_client_name,
};
pub(crate) use replies::{
    Acquired, Place, ReleaseMode, acquired, millis, refreshed, released, too_heavy, wake_in_of,
};

/// The maximum number of requests in one call.
pub(crate) const MAX_BATCH: usize = 1000;
