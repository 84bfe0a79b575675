//! A metrics recorder, and the values that it has counted.

use std::collections::BTreeMap;

use metrics::LocalRecorderGuard;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};

type Labels = BTreeMap<String, String>;

/// The values counted by one thread's recorder.
pub struct Counted {
    handle: PrometheusHandle,
    _local: LocalRecorderGuard<'static>,
}

impl Counted {
    /// Installs the recorder in this thread. Until the returned value is dropped, all clients and
    /// semaphores created here use the recorder.
    pub fn here() -> Self {
        let recorder: &PrometheusRecorder =
            Box::leak(Box::new(PrometheusBuilder::new().build_recorder()));
        Self { handle: recorder.handle(), _local: metrics::set_default_local_recorder(recorder) }
    }

    pub fn text(&self) -> String {
        self.handle.render()
    }

    /// Returns all current values. This call is slow if many permits were held, so use one result
    /// for many values.
    pub fn values(&self) -> Values {
        Values(read(&self.text()))
    }

    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.values().get(name, labels)
    }

    pub fn of(&self, semaphore: &str, name: &str) -> f64 {
        self.values().of(semaphore, name)
    }

    pub fn outcomes(&self, semaphore: &str) -> BTreeMap<String, f64> {
        self.values().outcomes(semaphore)
    }

    /// Returns the weight held, and the numbers of waiting requests, of ended permits, and of
    /// losses.
    pub fn held_waiting_ended_lost(&self, semaphore: &str) -> [f64; 4] {
        ["held", "queued", "hold_seconds_count", "lost_total"].map(|name| self.of(semaphore, name))
    }
}

/// The values counted up to one moment.
pub struct Values(BTreeMap<(String, Labels), f64>);

impl Values {
    /// Returns the value, or 0 if nothing was counted.
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels.iter().map(|(label, value)| (label.to_string(), value.to_string()));
        let key = (format!("redis_semaphore_client_{name}"), labels.collect());
        self.0.get(&key).copied().unwrap_or_default()
    }

    pub fn of(&self, semaphore: &str, name: &str) -> f64 {
        self.get(name, &[("semaphore", semaphore)])
    }

    /// Returns the number of requests with each outcome, without the outcomes that did not occur.
    pub fn outcomes(&self, semaphore: &str) -> BTreeMap<String, f64> {
        let all = self.0.iter().filter_map(|((name, labels), count)| {
            let is_one = name == "redis_semaphore_client_acquires_total"
                && labels.get("semaphore").is_some_and(|name| name == semaphore);
            (is_one && *count > 0.0).then(|| (labels["outcome"].clone(), *count))
        });
        all.collect()
    }
}

/// Reads a page of metrics in the format of Prometheus. The tests use only names without quotation
/// marks.
fn read(text: &str) -> BTreeMap<(String, Labels), f64> {
    let samples = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    samples.map(sample).collect()
}

fn sample(line: &str) -> ((String, Labels), f64) {
    let (key, value) = line.rsplit_once(' ').expect("a value");
    let (name, labels) = key.split_once('{').unwrap_or((key, "}"));
    let labels = labels.strip_suffix('}').expect("the end of the labels");
    let label = |label: &str| {
        let (label, value) = label.split_once('=').expect("a value of the label");
        (label.to_owned(), value.trim_matches('"').to_owned())
    };
    let labels = labels.split(',').filter(|label| !label.is_empty()).map(label).collect();
    ((name.to_owned(), labels), value.parse().expect("a number"))
}
