//! What public types print: little, whatever there is behind them.

use std::fmt::Debug;

use redis_semaphore::{Credentials, ScriptRegistry, Semaphores};
use tokio::task::JoinSet;

use crate::support::observer::Observer;
use crate::support::server::{shared_url, unique_name};

fn assert_short(value: &impl Debug) {
    for text in [format!("{value:?}"), format!("{value:#?}")] {
        assert!(text.len() < 1000, "{} bytes: {text}", text.len());
    }
}

#[tokio::test]
async fn a_thousand_waits_are_not_printed() {
    let (url, name) = (shared_url(), unique_name());
    let observer = Observer::new(&url, &name, 1).await;
    let semaphores = Semaphores::connect(&url).await.unwrap();
    let builder = || semaphores.semaphore(&name).limit(1);
    let semaphore = builder().build().unwrap();
    let permit = semaphore.acquire().await.unwrap();
    let mut waits = JoinSet::new();
    for _ in 0..1000 {
        waits.spawn(semaphore.request().acquire());
    }
    observer.sees(1, 1000).await;
    assert_short(&semaphores);
    assert_short(&builder());
    assert_short(&semaphore);
    assert_short(&semaphore.request());
    assert_short(&permit);
    assert_short(&permit.watch());
    assert_short(&semaphore.acquire_many(0).await.unwrap_err());
    assert!(format!("{permit:?}").contains(&name));
}

#[test]
fn nor_are_urls_and_the_texts_of_scripts() {
    assert_short(&Semaphores::builder());
    assert_short(&Credentials::new("secret"));
    assert_short(ScriptRegistry::embedded());
    assert_short(&ScriptRegistry::embedded().script("acquire"));
}
