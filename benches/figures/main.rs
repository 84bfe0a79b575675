//! The figures P1 to P11, S1 to S7 of the scripts, and N1 to N8 over a network. One run measures
//! each figure beside its baseline, and takes about five minutes.
//!
//! ```text
//! scripts/with-redis cargo bench --bench figures
//! scripts/with-redis cargo bench --bench figures -- --json
//! scripts/with-redis cargo bench --bench figures -- P2
//! scripts/with-redis cargo bench --bench figures -- N
//! ```
//!
//! A ratio is computed from rounds in which baseline and crate alternate, so that a slow period of
//! the machine affects both. The result is the median of the rounds.

mod calls;
mod cluster;
mod contention;
mod growth;
mod hand_off;
mod history;
mod latency;
mod memory;
mod network;
#[cfg(feature = "metrics")]
mod recorder;
#[path = "../support/mod.rs"]
mod support;
mod throughput;
mod tls;
mod trips;

use clap::Parser;
use support::Result;
use support::arguments::Arguments;
use support::report::Report;
use support::runner::Runner;

fn main() -> Result<()> {
    if let Some(ended) = hand_off::as_partner() {
        return ended;
    }
    let arguments = Arguments::parse();
    let mut report = Report::default();
    #[cfg(feature = "metrics")]
    recorder::install()?;
    let runner = Runner::new()?;
    runner.run(on_loopback(&arguments, &mut report));
    runner.run(over_network(&arguments, &mut report));
    report.print(arguments.json)
}

async fn on_loopback(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if arguments.wants("P1") {
        report.add(latency::p1().await?);
    }
    if arguments.wants("P2 P2a P2b") {
        report.add_all(throughput::p2().await?);
    }
    if arguments.wants("P3 P4 P5 P6") {
        report.add_all(contention::p3_to_p6().await?);
    }
    if arguments.wants("P7") {
        report.add(hand_off::p7().await?);
    }
    if arguments.wants("P8") {
        report.add(growth::p8().await?);
    }
    if arguments.wants("P9") {
        report.add(growth::p9().await?);
    }
    if arguments.wants("P10") {
        report.add_all(memory::p10().await?);
    }
    if arguments.wants("P11 P11a") {
        report.add_all(history::p11().await?);
    }
    if arguments.wants("S1 S2 S3 S4 S5 S6 S7") {
        report.add_all(calls::s1_to_s7().await?);
    }
    Ok(())
}

async fn over_network(arguments: &Arguments, report: &mut Report) -> Result<()> {
    if arguments.wants("N0 N0a") {
        report.add_all(network::n0().await?);
    }
    for contention in network::CONTENTIONS {
        if arguments.wants(contention.id) {
            report.add(contention.figure().await?);
        }
    }
    if arguments.wants("N5 N5a N5b") {
        report.add_all(throughput::n5().await?);
    }
    if arguments.wants("N6 N6a") {
        report.add_all(latency::n6().await?);
    }
    if arguments.wants("N7") {
        match tls::n7().await? {
            Some(figure) => report.add(figure),
            None => report.lacks("N7, over TLS,", "the server was built without TLS"),
        }
    }
    if arguments.wants("N7a") {
        match cluster::n7a().await? {
            Some(figure) => report.add(figure),
            None => report.lacks("N7a, in a cluster,", "the server is older than 7.0"),
        }
    }
    if arguments.wants("N8 N8a") {
        report.add_all(trips::n8().await?);
    }
    Ok(())
}
