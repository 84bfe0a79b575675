//! P7: the time from a release in this process until the waiter in another process runs. O: the
//! same for other designs.

mod messages;
mod pair;
pub mod partner;

use serde_json::json;

use crate::flood;
use crate::support::Result;
use crate::support::design::Design;
use crate::support::designs::blocking_list::BlockingList;
use crate::support::designs::fair::Fair;
use crate::support::designs::locked::Locked;
use crate::support::figure::Figure;
use crate::support::ours::Ours;
use crate::support::rounds::{Rounds, median, micros, rounds_of};
use messages::Messages;
use pair::Pair;

const ROUNDS: usize = 9;
const TIMES: usize = 40;

/// Runs this program as the other process, or returns `None` in the measuring process.
pub fn as_partner() -> Option<Result<()>> {
    let (design, name) = partner::role()?;
    Some(match design.as_str() {
        flood::PARTNER => flood::serve(&name),
        Messages::NAME => partner::serve::<Messages>(&name),
        Ours::NAME => partner::serve::<Ours>(&name),
        <Fair as Design>::NAME => partner::serve::<Fair>(&name),
        Locked::NAME => partner::serve::<Locked>(&name),
        BlockingList::NAME => partner::serve::<BlockingList>(&name),
        _ => Err(format!("the design {design} has no handoff").into()),
    })
}

pub async fn p7() -> Result<Vec<Figure>> {
    Ok(vec![figure::<Ours>("P7").await?.ratio_at_most(1.4)])
}

pub async fn others() -> Result<Vec<Figure>> {
    Ok(vec![
        figure::<BlockingList>("O").await?,
        figure::<Fair>("O").await?,
        figure::<Locked>("O").await?,
    ])
}

async fn figure<D: Design>(id: &'static str) -> Result<Figure> {
    let mut baseline = Pair::<Messages>::start().await?;
    let mut pair = Pair::<D>::start().await?;
    let mut rounds = Rounds::default();
    for _ in 0..rounds_of(ROUNDS) {
        rounds.add((round(&mut baseline).await?, round(&mut pair).await?));
    }
    let what = format!("{}: handoff to another process, p50", D::NAME);
    Figure::of(id, what, "us", &rounds).with_details(json!({ "design": D::NAME }))
}

async fn round<D: Design>(pair: &mut Pair<D>) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        times.push(micros(pair.hand_off().await?));
    }
    Ok(median(&mut times))
}
