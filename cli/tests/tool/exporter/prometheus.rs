//! Tests with Debian's Prometheus that the queries, the alerts and the dashboard in `docs` work
//! with the exporter's metrics. `.ci/run` installs the programs and enables these tests.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::scrape::{Exporter, get, use_all};
use crate::support::eventually_async;
use crate::support::process::Process;
use crate::support::server::{Server, until_queued};
use test_support::folder::Folder;

const DASHBOARD: &str = include_str!("../../../../docs/grafana.json");
const ALERTS: &str = include_str!("../../../../docs/alerts.yml");
const ALERTS_TEST: &str = include_str!("alerts.yml");
const METRICS: &str = include_str!("../../../../docs/metrics.md");

fn path(inside: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(inside)
}

fn promtool(command: &mut Command) {
    let output = command.output().expect("promtool, of the package prometheus");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn each_alert_fires_in_the_promtool_tests() {
    promtool(Command::new("promtool").args(["check", "rules"]).arg(path("../docs/alerts.yml")));
    let test = path("tests/tool/exporter/alerts.yml");
    promtool(Command::new("promtool").args(["test", "rules"]).arg(test));
    let alerts = ALERTS.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    assert!(alerts.clone().count() > 5);
    for alert in alerts {
        // The name of an alert that must fire is on a separate line.
        let fires = format!("alertname: {alert}\n");
        assert!(ALERTS_TEST.contains(&fires), "no test expects {alert} to fire");
    }
}

/// Returns the queries of docs/metrics.md. A comment line precedes each query.
fn queries() -> Vec<String> {
    let (_, block) = METRICS.split_once("```promql\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let lines = block.lines().map(|line| if line.starts_with('#') { "#" } else { line });
    let joined = lines.collect::<Vec<_>>().join(" ");
    joined.split('#').map(str::trim).filter(|query| !query.is_empty()).map(str::to_owned).collect()
}

#[test]
fn promtool_accepts_the_documented_queries() {
    let rule = |(number, query)| format!("  - {{ record: query{number}, expr: '{query}' }}\n");
    let rules: String = queries().iter().enumerate().map(rule).collect();
    assert!(rules.lines().count() > 3, "{rules}");
    let folder = Folder::create();
    let file = folder.0.join("rules.yml");
    fs::write(&file, format!("groups:\n- name: told\n  rules:\n{rules}")).unwrap();
    promtool(Command::new("promtool").args(["check", "rules"]).arg(file));
}

/// The exporter does not report the metrics of client processes, so this test compares their names
/// with the documentation. Prometheus adds suffixes to the names of histograms.
#[test]
fn queries_and_alerts_use_only_documented_client_metrics() {
    const OURS: &str = "redis_semaphore_client_";
    let asked = [ALERTS.to_owned(), queries().join(" ")].join(" ");
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let names = asked.split(|c| !is_part(c)).filter(|name| name.starts_with(OURS));
    assert!(names.clone().count() > 10, "{asked}");
    for name in names {
        let parts = ["_bucket", "_count", "_sum"];
        let histogram = parts.iter().find_map(|part| name.strip_suffix(part));
        let row = match histogram {
            Some(name) => format!("\n| `{name}` | histogram |"),
            None => format!("\n| `{name}` | counter |"),
        };
        assert!(METRICS.contains(&row), "{name}");
    }
}

#[tokio::test]
async fn promtool_accepts_the_metrics_of_the_exporter() {
    let server = Server::start();
    use_all(&server, [r#"a "quoted" one"#, r"back\slash", "ключ"]).await;
    let exporter = Exporter::start(&server.url, &[]).await;
    let folder = Folder::create();
    let file = folder.0.join("metrics");
    fs::write(&file, get(exporter.address, "/metrics", "").await.body).unwrap();
    let input = fs::File::open(&file).unwrap();
    promtool(Command::new("promtool").args(["check", "metrics"]).stdin(input));
}

struct Prometheus {
    _process: Process,
    _folder: Folder,
    address: SocketAddr,
}

impl Prometheus {
    async fn start(exporter: &Exporter) -> Self {
        let folder = Folder::create();
        let (target, alerts) = (exporter.address, path("../docs/alerts.yml"));
        let configuration = format!(
            "global: {{ scrape_interval: 1s }}\n\
             rule_files: [{alerts:?}]\n\
             scrape_configs:\n\
             - job_name: redis-semaphore\n\
             \x20 static_configs: [{{ targets: ['{target}'] }}]\n"
        );
        let file = folder.0.join("prometheus.yml");
        fs::write(&file, configuration).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", file.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.0.join("data").display()));
        command.arg("--web.listen-address=127.0.0.1:0");
        let log = folder.0.join("log");
        command.stderr(fs::File::create(&log).unwrap()).stdout(Stdio::null());
        let process = Process::start(&mut command);
        let address = eventually_async("its address", async || {
            let log = fs::read_to_string(&log).unwrap();
            let (_, reported) = log.split_once("msg=\"Listening on\"")?;
            reported.lines().next()?.split_once("address=")?.1.parse().ok()
        });
        Self { address: address.await, _process: process, _folder: folder }
    }

    /// Returns the results of a query, each with its labels.
    async fn query(&self, expression: &str) -> Vec<Value> {
        let escape = |byte: u8| format!("%{byte:02x}");
        let query: String = expression.bytes().map(escape).collect();
        let response = get(self.address, &format!("/api/v1/query?query={query}"), "").await;
        let response: Value = serde_json::from_str(&response.body).unwrap_or_default();
        // Prometheus may not have read its data yet.
        assert_ne!(response["errorType"], "bad_data", "{expression}: {response}");
        response["data"]["result"].as_array().cloned().unwrap_or_default()
    }
}

/// Adds all values of keys with this name to `found`, at any depth.
fn each<'a>(name: &str, value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(name).and_then(Value::as_str));
            fields.values().for_each(|value| each(name, value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| each(name, value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn each_dashboard_query_returns_data_from_prometheus() {
    let server = Server::start();
    let semaphore = server.semaphores().await.semaphore("jobs").limit(1).build().unwrap();
    let _held = semaphore.acquire().await.unwrap();
    let _waiting = tokio::spawn(semaphore.request().acquire());
    until_queued(&semaphore, 1).await;
    let exporter = Exporter::start(&server.url, &[]).await;
    let prometheus = Prometheus::start(&exporter).await;

    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let mut expressions = Vec::new();
    each("expr", &dashboard, &mut expressions);
    assert!(expressions.len() > 5, "{expressions:?}");
    for expression in expressions {
        let expression = expression.replace("$semaphore", "jobs");
        assert!(!expression.contains('$'), "{expression}");
        let responses =
            async || Some(prometheus.query(&expression).await).filter(|all| !all.is_empty());
        eventually_async(&expression, responses).await;
    }
    // This query provides the names from which a user can choose.
    let mut choices = Vec::new();
    each("query", &dashboard["templating"], &mut choices);
    let choice = choices.iter().find_map(|query| query.strip_prefix("label_values("));
    let (metric, label) = choice.unwrap().trim_end_matches(')').split_once(", ").unwrap();
    let held = prometheus.query(metric).await;
    assert_eq!(held[0]["metric"][label], "jobs");
    assert_eq!(held[0]["value"][1], "1");
}
