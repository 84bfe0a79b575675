//! The time from a release in this process until the waiter in another process runs.

mod ends;
mod moment;
mod partner;

use std::sync::Arc;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode};
use ends::{Ends, OfDesign, OfMessages};
use partner::Partner;
use tokio::sync::Mutex;

use crate::support::Result;
use crate::support::designs::blocking_list::BlockingList;
use crate::support::designs::fair::Fair;
use crate::support::designs::locked::Locked;
use crate::support::ours::Ours;
use crate::support::runner::Runner;
use crate::support::server::unique_name;

/// The other process prints a line, and then queues its request. This time after the line, the
/// request is in the queue.
const TIME_TO_QUEUE: Duration = Duration::from_millis(5);

pub fn bench(criterion: &mut Criterion, runner: &Runner) {
    let mut group = criterion.benchmark_group("hand_off");
    group.sampling_mode(SamplingMode::Flat).measurement_time(Duration::from_secs(4));
    bench_one::<OfMessages>(&mut group, runner);
    bench_one::<OfDesign<Ours>>(&mut group, runner);
    bench_one::<OfDesign<Fair>>(&mut group, runner);
    bench_one::<OfDesign<Locked>>(&mut group, runner);
    bench_one::<OfDesign<BlockingList>>(&mut group, runner);
    group.finish();
}

/// Runs this program as the other process, or returns `None` in the measuring process.
pub fn as_partner(runner: &Runner) -> Option<Result<()>> {
    let (design, name) = partner::role()?;
    Some(match design.as_str() {
        OfMessages::NAME => partner::serve::<OfMessages>(runner, &name),
        OfDesign::<Ours>::NAME => partner::serve::<OfDesign<Ours>>(runner, &name),
        OfDesign::<Fair>::NAME => partner::serve::<OfDesign<Fair>>(runner, &name),
        OfDesign::<Locked>::NAME => partner::serve::<OfDesign<Locked>>(runner, &name),
        OfDesign::<BlockingList>::NAME => partner::serve::<OfDesign<BlockingList>>(runner, &name),
        _ => Err(format!("there is no hand-off of {design}").into()),
    })
}

fn bench_one<E: Ends>(group: &mut BenchmarkGroup<'_, WallTime>, runner: &Runner) {
    let mut started = None;
    group.bench_function(E::NAME, |bencher| {
        let (here, there) = started.get_or_insert_with(|| {
            let name = unique_name("hand-off");
            let here = Arc::new(Mutex::new(runner.run(E::open(&name))));
            (here, Partner::start::<E>(&name).unwrap_or_else(|error| panic!("{error}")))
        });
        bencher.iter_custom(|times| {
            (0..times).map(|_| runner.run(hand_off(here, there))).sum::<Duration>()
        });
    });
}

async fn hand_off<E: Ends>(here: &Arc<Mutex<E>>, there: &mut Partner) -> Result<Duration> {
    here.lock().await.take().await?;
    there.asks()?;
    tokio::time::sleep(TIME_TO_QUEUE).await;
    let here = here.clone();
    // The call runs in a task, as in a program.
    let given = tokio::spawn(async move { here.lock().await.give().await }).await??;
    Ok(there.received()? - given)
}
