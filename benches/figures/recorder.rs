//! With `--features metrics`: all that is measured is counted, too, by a recorder of Prometheus.

use std::thread;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;

use crate::support::Result;

/// How often a program that serves them puts the values of histograms in order.
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
