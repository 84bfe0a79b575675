//! Everything runs against real servers: `scripts/with-redis cargo test`.

mod support;

mod model;
