//! The figures P1 to P10, and N1 to N8 over a network: each measured beside its floor in one run,
//! about five minutes.
//!
//! ```text
//! scripts/with-redis cargo bench --bench figures
//! scripts/with-redis cargo bench --bench figures -- --json
//! scripts/with-redis cargo bench --bench figures -- P2
//! ```
//!
//! A ratio comes from rounds in which floor and crate take turns, so that a machine that is slow
//! for a while is slow for both; the median of the rounds counts.

mod contention;
mod growth;
mod hand_off;
mod latency;
mod memory;
mod network;
#[path = "../support/mod.rs"]
mod support;
mod throughput;

use clap::Parser;
use support::Result;
use support::arguments::Arguments;
use support::figure::{self, Figure};
use support::runner::Runner;

fn main() -> Result<()> {
    if let Some(ended) = hand_off::as_partner() {
        return ended;
    }
    let arguments = Arguments::parse();
    let figures = Runner::new()?.run(measure(&arguments));
    if arguments.json {
        println!("{}", serde_json::to_string(&figures)?);
    } else {
        print!("{}", figure::table(&figures));
    }
    Ok(())
}

async fn measure(arguments: &Arguments) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if arguments.wants("P1") {
        figures.push(latency::p1().await?);
    }
    if arguments.wants("P2 P2a P2b") {
        figures.extend(throughput::p2().await?);
    }
    if arguments.wants("P3 P4 P5 P6") {
        figures.extend(contention::p3_to_p6().await?);
    }
    if arguments.wants("P7") {
        figures.push(hand_off::p7().await?);
    }
    if arguments.wants("P8") {
        figures.push(growth::p8().await?);
    }
    if arguments.wants("P9") {
        figures.push(growth::p9().await?);
    }
    if arguments.wants("P10") {
        figures.extend(memory::p10().await?);
    }
    figures.extend(measure_over_network(arguments).await?);
    Ok(figures)
}

async fn measure_over_network(arguments: &Arguments) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if arguments.wants("N0 N0a") {
        figures.extend(network::n0().await?);
    }
    for contention in network::CONTENTIONS {
        if arguments.wants(contention.id) {
            figures.push(contention.figure().await?);
        }
    }
    if arguments.wants("N5 N5a") {
        figures.extend(throughput::n5().await?);
    }
    if arguments.wants("N6 N6a") {
        figures.extend(latency::n6().await?);
    }
    Ok(figures)
}
