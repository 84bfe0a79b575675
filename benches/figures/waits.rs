//! W: how long tasks wait under contention, and how fair the grants are. The figures compare this
//! crate with the baseline of a handoff and with older designs.

use crate::support::Result;
use crate::support::designs::blocking_list::BlockingList;
use crate::support::designs::fair::{Fair, PatientFair};
use crate::support::designs::locked::Locked;
use crate::support::figure::Figure;
use crate::support::ours::Ours;
use crate::support::relay::Relay;
use crate::support::rush::Rush;

pub async fn all() -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for rush in Rush::all() {
        figures.push(rush.run::<Relay>().await?.figure()?);
        figures.push(rush.run::<Ours>().await?.figure()?);
        figures.push(rush.run::<BlockingList>().await?.figure()?);
        figures.push(rush.run::<Fair>().await?.figure()?);
        figures.push(rush.run::<PatientFair>().await?.figure()?);
        figures.push(rush.run::<Locked>().await?.figure()?);
    }
    Ok(figures)
}
