//! The metrics of the exporter, in the text formats of OpenMetrics and Prometheus.

use std::fmt;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::exporter::look::Picture;
use crate::survey::Summary;

const UP: &str = "1 if the semaphores could be read, 0 if not";
const SCRAPE: &str = "How long it took to read all semaphores";
const KEYS: &str = "Keys in the database, all of which are scanned for semaphores";
const OMITTED: &str = "Semaphores that are missing here: more than --max-semaphores exist, or the \
                       server rejects the call that reads them (redis-semaphore ls shows why)";
const LIMIT: &str = "The effective limit";
const DECLARED: &str =
    "The limit that programs declare; a different effective limit is a runtime limit";
const HELD: &str = "The total weight of all permits that are held";
const QUEUED: &str = "Requests in the queue, including those whose process is dead";
const LONGEST_WAIT: &str =
    "The longest wait among the first requests in the queue whose process is alive";

/// Returns the metrics in the text format of OpenMetrics. All metrics are gauges, so the text is
/// also valid in the format of Prometheus.
pub fn text(looked: Option<Picture>, took: Duration) -> String {
    let mut registry = Registry::with_prefix("redis_semaphore");
    registry.register_collector(Box::new(Reported { looked, took }));
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a string cannot fail");
    text
}

#[derive(Debug)]
struct Reported {
    /// `None` if reading failed. The exporter keeps no values of earlier scrapes, because a reader
    /// would consider them current.
    looked: Option<Picture>,
    took: Duration,
}

impl Collector for Reported {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let encoder = &mut encoder;
        one(encoder, ("up", UP), u64::from(self.looked.is_some()), None)?;
        one(encoder, ("scrape", SCRAPE), self.took.as_secs_f64(), Some(&Unit::Seconds))?;
        let Some(picture) = &self.looked else { return Ok(()) };
        if let Some(keys) = picture.keys {
            one(encoder, ("keys", KEYS), keys, None)?;
        }
        let omitted = [("max", picture.over_max), ("rejected", picture.refused())];
        let omitted = omitted.map(|(reason, number)| (reason, number as u64));
        by_label(encoder, ("omitted", OMITTED), "reason", omitted, None)?;
        of_each(picture, encoder, ("limit", LIMIT), |summary| summary.limit.map(u64::from))?;
        let declared = |summary: &Summary| summary.declared.map(u64::from);
        of_each(picture, encoder, ("declared_limit", DECLARED), declared)?;
        of_each(picture, encoder, ("held", HELD), |summary| Some(summary.held))?;
        of_each(picture, encoder, ("queued", QUEUED), |summary| Some(summary.queued))?;
        let wait = |summary: &Summary| summary.longest_wait.unwrap_or_default().as_secs_f64();
        let waits = picture.reported().map(|(name, summary)| (name, wait(summary)));
        let described = ("longest_wait", LONGEST_WAIT);
        by_label(encoder, described, "semaphore", waits, Some(&Unit::Seconds))
    }
}

/// The name and the help text of a metric.
type Described = (&'static str, &'static str);

fn one(
    encoder: &mut DescriptorEncoder,
    (name, help): Described,
    value: impl EncodeGaugeValue,
    unit: Option<&Unit>,
) -> fmt::Result {
    let encoder = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    ConstGauge::new(value).encode(encoder)
}

fn of_each(
    picture: &Picture,
    encoder: &mut DescriptorEncoder,
    described: Described,
    value: impl Fn(&Summary) -> Option<u64>,
) -> fmt::Result {
    let values = picture.reported().filter_map(|(name, summary)| Some((name, value(summary)?)));
    by_label(encoder, described, "semaphore", values, None)
}

fn by_label<'a>(
    encoder: &mut DescriptorEncoder,
    (name, help): Described,
    label: &str,
    values: impl IntoIterator<Item = (&'a str, impl EncodeGaugeValue)>,
    unit: Option<&Unit>,
) -> fmt::Result {
    let mut encoder = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
    for (of, value) in values {
        let labels = [(label, of)];
        ConstGauge::new(value).encode(encoder.encode_family(&labels)?)?;
    }
    Ok(())
}
