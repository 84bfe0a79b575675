//! The waits of tasks under contention, and the fairness of grants: for this crate, the baseline of
//! a handoff, and older designs.
//!
//! ```text
//! scripts/with-redis cargo bench --bench waits
//! scripts/with-redis cargo bench --bench waits -- --json
//! ```

mod figures;
mod rush;
#[path = "../support/mod.rs"]
mod support;

use clap::Parser;
use figures::Figures;
use rush::Rush;
use support::Result;
use support::arguments::Arguments;
use support::designs::blocking_list::BlockingList;
use support::designs::fair::{Fair, PatientFair};
use support::designs::locked::Locked;
use support::open_files;
use support::ours::Ours;
use support::relay::Relay;

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if !arguments.wants("waits") {
        return Ok(());
    }
    open_files::allow_as_many_as_possible()?;
    let mut all = Vec::new();
    for rush in Rush::all(arguments.only_tests()) {
        all.push(Figures::new(&rush, &rush.run::<Relay>().await?));
        all.push(Figures::new(&rush, &rush.run::<Ours>().await?));
        all.push(Figures::new(&rush, &rush.run::<BlockingList>().await?));
        all.push(Figures::new(&rush, &rush.run::<Fair>().await?));
        all.push(Figures::new(&rush, &rush.run::<PatientFair>().await?));
        all.push(Figures::new(&rush, &rush.run::<Locked>().await?));
    }
    figures::print(&all, arguments.json)
}
