//! Tests that `docs/metrics.md` describes exactly the metrics that exist.

use std::collections::BTreeSet;

use redis_semaphore::SemaphoreClient;

use super::counted::Counted;
use test_support::server::{shared_url, unique_name};

#[tokio::test]
async fn metrics_md_lists_exactly_the_existing_metrics() {
    let page = include_str!("../../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `redis_semaphore_client_"));
    let reported: BTreeSet<_> = rows
        .map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            (cells[0].trim_end_matches('`').to_owned(), cells[1].to_owned())
        })
        .collect();
    assert!(reported.len() > 5, "{reported:?}");

    let counted = Counted::here();
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(unique_name()).limit(1).build().unwrap();
    semaphore.acquire().await.unwrap().release().await.unwrap();
    let text = counted.text();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE redis_semaphore_client_"));
    let counted: BTreeSet<_> = types
        .map(|line| {
            let (name, kind) = line.split_once(' ').unwrap();
            assert!(text.contains(&format!("# HELP redis_semaphore_client_{name} ")), "{name}");
            // A histogram is written as a summary unless buckets are set.
            (name.to_owned(), kind.replace("summary", "histogram"))
        })
        .collect();
    assert_eq!(counted, reported);
}
