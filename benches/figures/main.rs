//! The figures. P1 to P11 (this machine), S1 to S7 (scripts), G1 to G6 (groups) and N0 to N8
//! (networks) have or had targets. C, O, H, Q, R, M, W, D and F are published. L finds leaks.
//!
//! ```text
//! scripts/with-redis cargo bench --bench figures                   # P, S, G and N: six minutes
//! scripts/with-redis cargo bench --bench figures -- --json
//! scripts/with-redis cargo bench --bench figures -- P2 N
//! scripts/with-redis cargo bench --bench figures -- L              # leaks: 13 minutes
//! ```
//!
//! A ratio is computed from rounds in which baseline and crate alternate, so that a slow period of
//! the machine affects both. The result is the median of the rounds.

mod calls;
mod contention;
mod crowds;
mod distances;
mod flood;
mod groups;
mod growth;
mod hand_off;
mod history;
mod latency;
mod leaks;
mod load;
mod loads;
mod memory;
mod network;
#[cfg(feature = "metrics")]
mod recorder;
mod refreshes;
#[path = "../support/mod.rs"]
mod support;
mod throughput;
mod trips;
mod waits;

use clap::Parser;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use support::Result;
use support::arguments::Arguments;
use support::figure::{self, Figure};
use support::runner::Runner;

/// Figures that are measured together: their IDs, and the measurement.
struct Group(&'static [&'static str], fn() -> LocalBoxFuture<'static, Result<Vec<Figure>>>);

const GROUPS: &[Group] = &[
    Group(&["P1"], || latency::p1().boxed_local()),
    Group(&["P2", "P2a", "P2b"], || throughput::p2().boxed_local()),
    Group(&["P3", "P4", "P5", "P6"], || contention::p3_to_p6().boxed_local()),
    Group(&["P7"], || hand_off::p7().boxed_local()),
    Group(&["P8"], || growth::p8().boxed_local()),
    Group(&["P9"], || growth::p9().boxed_local()),
    Group(&["P10", "P10w"], || memory::p10().boxed_local()),
    Group(&["P11", "P11a"], || history::p11().boxed_local()),
    Group(calls::IDS, || calls::s1_to_s7().boxed_local()),
    Group(&["G1", "G2"], || groups::g1_and_g2().boxed_local()),
    Group(&["G3", "G4", "G5"], || groups::g3_to_g5().boxed_local()),
    Group(&["G6"], || memory::g6().boxed_local()),
    Group(&["N0", "N0a"], || network::n0().boxed_local()),
    Group(&["N1"], || loads::n1().boxed_local()),
    Group(&["N2"], || loads::n2().boxed_local()),
    Group(&["N3"], || loads::n3().boxed_local()),
    Group(&["N4"], || loads::n4().boxed_local()),
    Group(&["N5", "N5a", "N5b"], || throughput::n5().boxed_local()),
    Group(&["N6", "N6a"], || latency::n6().boxed_local()),
    Group(&["N7"], || loads::n7().boxed_local()),
    Group(&["N7a"], || loads::n7a().boxed_local()),
    Group(&["N8", "N8a"], || trips::n8().boxed_local()),
    Group(&["C"], || throughput::clients().boxed_local()),
    Group(&["H"], || crowds::holders().boxed_local()),
    Group(&["Q"], || crowds::waiters().boxed_local()),
    Group(&["R"], || refreshes::all().boxed_local()),
    Group(&["O"], || hand_off::others().boxed_local()),
    Group(&["M1", "M2", "M3"], || memory::m().boxed_local()),
    Group(&["W"], || waits::all().boxed_local()),
    Group(&["D"], || distances::all().boxed_local()),
    Group(&["F"], || flood::all().boxed_local()),
    Group(&["L1", "L1a"], || leaks::l1().boxed_local()),
    Group(&["L2", "L2a"], || leaks::l2().boxed_local()),
];

fn main() -> Result<()> {
    if let Some(ended) = hand_off::as_partner() {
        return ended;
    }
    let arguments = Arguments::parse();
    support::open_files::allow_as_many_as_possible()?;
    #[cfg(feature = "metrics")]
    recorder::install()?;
    let runner = Runner::new()?;
    let mut figures = Vec::new();
    for Group(ids, measure) in GROUPS {
        if ids.iter().any(|id| arguments.choose(id)) {
            figures.extend(runner.run(measure()));
        }
    }
    figure::print(&figures, arguments.json)
}
