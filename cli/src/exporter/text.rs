//! The metrics, and how they are written.

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

const UP: &str = "Whether the semaphores could be looked at: 1, or 0";
const SCRAPE: &str = "How long the look at all semaphores took";
const KEYS: &str = "Keys on the server, all of which are looked through for semaphores";
const OMITTED: &str = "Semaphores that are missing here: there are more than --max-semaphores, or the server \
                       rejects the call that reads them (redis-semaphore ls shows why)";
const LIMIT: &str = "How much may be held at once: the limit in force";
const DECLARED: &str = "The limit that programs declare; another one in force was set at run time";
const HELD: &str = "The weight of all permits that are held";
const QUEUED: &str = "Requests in the queue, also those whose process has gone";
const LONGEST_WAIT: &str = "The longest wait among the first in the queue whose process is there";

/// In the text format of OpenMetrics. As all metrics are gauges, it is in that of Prometheus, too.
pub fn text(looked: Option<Picture>, took: Duration) -> String {
    let mut registry = Registry::with_prefix("redis_semaphore");
    registry.register_collector(Box::new(Told { looked, took }));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all that is written");
    text
}

#[derive(Debug)]
struct Told {
    /// `None` where that failed: better no values than old ones.
    looked: Option<Picture>,
    took: Duration,
}

impl Collector for Told {
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
        let waits = picture.told().map(|(name, summary)| (name, wait(summary)));
        let described = ("longest_wait", LONGEST_WAIT);
        by_label(encoder, described, "semaphore", waits, Some(&Unit::Seconds))
    }
}

/// Name and help.
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
    let values = picture.told().filter_map(|(name, summary)| Some((name, value(summary)?)));
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
