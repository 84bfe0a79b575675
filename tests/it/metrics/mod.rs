//! The feature `metrics` counts each event once, as `docs/metrics.md` describes, and gauges return
//! to their earlier values. The tests read a Prometheus recorder, as a program would.

mod calls;
pub mod counted;
mod holds;
mod labels;
mod outcomes;
mod page;
mod panics;
