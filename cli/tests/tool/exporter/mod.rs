mod metrics;
mod outages;
#[cfg(feature = "prometheus-tests")]
mod prometheus;
mod scrape;
mod values;
mod web;
