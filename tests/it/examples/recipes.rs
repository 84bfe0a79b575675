//! Tests of the recipes that use other crates. Several processes together never hold more permits
//! than the limit.

use super::{fails, output_of};
use test_support::observer::Observer;
use test_support::server::{shared_admin_url, unique_name};

async fn keeps_to_its_limit(example: &str, done: &str) {
    let name = unique_name();
    let output = output_of(example, &["2", &name]).await;
    let most = output.strip_prefix(done).and_then(|rest| rest.strip_suffix(" at once\n"));
    let most: u32 = most.and_then(|most| most.parse().ok()).expect(&output);
    assert!((1..=2).contains(&most), "{output}");
    Observer::new(&shared_admin_url(), &name, 2).await.sees(0, 0).await;
}

#[tokio::test]
async fn the_reqwest_example_never_makes_more_concurrent_calls_than_the_limit() {
    keeps_to_its_limit("reqwest", "40 calls of 4 processes, at most ").await;
}

#[tokio::test]
async fn the_sqlx_example_never_runs_more_concurrent_queries_than_the_limit() {
    keeps_to_its_limit("sqlx", "12 heavy queries of 3 processes, at most ").await;
}

#[tokio::test]
async fn invalid_arguments_are_rejected_with_a_message() {
    fails("reqwest", &["0"], 2, "0 is not in 1..").await;
    fails("sqlx", &["0"], 2, "0 is not in 1..").await;
}
