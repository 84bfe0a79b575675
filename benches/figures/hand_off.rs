//! P7: the time from a release in this process until the waiter in another process runs.

#[path = "../semaphore/hand_off/ends.rs"]
mod ends;
#[path = "../semaphore/hand_off/moment.rs"]
mod moment;
#[path = "../semaphore/hand_off/partner.rs"]
mod partner;

use std::time::Duration;

use ends::{Ends, OfDesign, OfMessages};
use partner::Partner;

use crate::support::Result;
use crate::support::figure::{Better, Figure};
use crate::support::ours::Ours;
use crate::support::rounds::{Rounds, median, micros, rounds_of};
use crate::support::runner::Runner;
use crate::support::server::unique_name;

const ROUNDS: usize = 9;
const TIMES: usize = 40;
/// The other process prints a line, and then queues its request. This time after the line, the
/// request is in the queue.
const TIME_TO_QUEUE: Duration = Duration::from_millis(3);

/// Runs this program as the other process, or returns `None` in the measuring process.
pub fn as_partner() -> Option<Result<()>> {
    let (design, name) = partner::role()?;
    Some(Runner::new().and_then(|runner| match design.as_str() {
        OfMessages::NAME => partner::serve::<OfMessages>(&runner, &name),
        _ => partner::serve::<OfDesign<Ours>>(&runner, &name),
    }))
}

pub async fn p7() -> Result<Figure> {
    let mut baseline = Pair::<OfMessages>::start().await?;
    let mut ours = Pair::<OfDesign<Ours>>::start().await?;
    let mut rounds = Rounds::default();
    for _ in 0..rounds_of(ROUNDS) {
        rounds.add(baseline.round().await?, ours.round().await?);
    }
    let (medians, ratio) = rounds.medians();
    let what = "hand-off to another process, p50";
    Ok(Figure::new("P7", what, "us", medians, ratio, Better::AtMost(1.4)))
}

struct Pair<E: Ends> {
    here: Option<E>,
    there: Partner,
}

impl<E: Ends> Pair<E> {
    async fn start() -> Result<Self> {
        let name = unique_name("p7");
        let here = Some(E::open(&name).await?);
        Ok(Self { here, there: Partner::start::<E>(&name)? })
    }

    async fn round(&mut self) -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..TIMES {
            times.push(micros(self.hand_off().await?));
        }
        Ok(median(&mut times))
    }

    async fn hand_off(&mut self) -> Result<Duration> {
        let mut here = self.here.take().ok_or("an earlier hand-off failed")?;
        here.take().await?;
        self.there.asks()?;
        tokio::time::sleep(TIME_TO_QUEUE).await;
        // The call runs in a task, as in a program.
        let give = async move { here.give().await.map(|given| (here, given)) };
        let (here, given) = tokio::spawn(give).await??;
        self.here = Some(here);
        Ok(self.there.received()? - given)
    }
}
