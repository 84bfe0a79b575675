//! Tests of the labels with names of semaphores. The number of these names is limited.

use redis_semaphore::{Error, SemaphoreClient};

use super::counted::Counted;
use test_support::server::{shared_url, unique_name};

/// No semaphore can have this name.
const OTHER: &str = "{other}";

#[tokio::test]
async fn semaphore_names_beyond_the_maximum_number_share_one_label() {
    let counted = Counted::here();
    let client =
        SemaphoreClient::builder().max_metric_names(2).connect(&shared_url()).await.unwrap();
    let names = [(); 4].map(|()| unique_name());
    for _ in 0..2 {
        for name in &names {
            // The semaphore is built for each request and dropped after it.
            let semaphore = client.semaphore(name).limit(1).build().unwrap();
            semaphore.acquire().await.unwrap().release().await.unwrap();
        }
    }
    let immediate = |name: &str| counted.outcomes(name).get("immediate").copied();
    assert_eq!([&names[0], &names[1]].map(|name| immediate(name)), [Some(2.0); 2]);
    assert_eq!([&names[2], &names[3]].map(|name| immediate(name)), [None; 2]);
    assert_eq!(immediate(OTHER), Some(4.0));
    assert_eq!(counted.held_waiting_ended_lost(OTHER), [0.0, 0.0, 4.0, 0.0]);
    let taken = client.semaphore(OTHER).limit(1).build();
    assert!(matches!(taken, Err(Error::Invalid { what: "name", .. })), "{taken:?}");
}
