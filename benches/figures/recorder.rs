//! With `--features metrics`, a Prometheus recorder counts everything that is measured.

use std::thread;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;

use crate::support::Result;

/// The interval at which a program with this recorder sorts the values of its histograms.
const UPKEEP: Duration = Duration::from_secs(5);

pub fn install() -> Result<()> {
    let recorder = PrometheusBuilder::new().install_recorder()?;
    thread::spawn(move || {
        loop {
            thread::sleep(UPKEEP);
            recorder.run_upkeep();
        }
    });
    Ok(())
}
