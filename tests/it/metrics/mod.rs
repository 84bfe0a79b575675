//! What the feature `metrics` counts: each event once, as `docs/metrics.md` says, and gauges that
//! come back. A recorder of Prometheus is asked, as a program's would be.

mod calls;
pub mod counted;
mod holds;
mod labels;
mod outcomes;
mod page;
mod panics;
