//! Tests that `downcast_ref` finds the error of redis-rs in chains of errors.

use std::error::Error as StdError;

use redis_semaphore::redis::RedisError;
use redis_semaphore::{Error, ScriptRegistry, SemaphoreClient};

use test_support::errors::whole;
use test_support::scripts::keys_of;
use test_support::server::{connect, shared_admin_url, shared_url, unique_name};

use super::assert_reported_once;

/// Searches a chain like a caller that has any error type, for example `anyhow::Error`.
fn found<'a>(mut error: &'a (dyn StdError + 'static)) -> &'a RedisError {
    loop {
        if let Some(found) = error.downcast_ref() {
            return found;
        }
        error = error.source().expect("the chain contains the Redis error");
    }
}

/// Checks that `downcast_ref` finds Redis's text, and that the chain and `Debug` contain that text
/// once.
fn assert_said(error: Error, said: &str) {
    assert_reported_once(&error);
    for printed in [whole(&error), format!("{error:?}")] {
        assert_eq!(printed.matches(said).count(), 1, "{said:?} in {printed}");
    }
    let error: Box<dyn StdError> = Box::new(error);
    assert!(found(&*error).to_string().contains(said), "{error}");
}

#[tokio::test]
async fn the_error_of_redis_rs_is_found_and_printed_once() {
    let connecting = SemaphoreClient::connect("redis://127.0.0.1:1/").await;
    assert_said(connecting.unwrap_err(), "Connection refused");

    let (url, name) = (shared_url(), unique_name());
    let client = SemaphoreClient::connect(&url).await.unwrap();
    let mut admin = connect(&shared_admin_url());
    redis::cmd("SET").arg(&keys_of(&name)[0]).arg("other").exec(&mut admin).unwrap();
    let semaphore = client.semaphore(&name).limit(1).build().unwrap();
    let refused = semaphore.acquire().await.unwrap_err();
    assert!(matches!(refused, Error::Rejected { .. }), "{refused:?}");
    assert_said(refused, "exists and is not");

    let client = redis::Client::open(shared_admin_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let (keys, none): (Vec<String>, [&str; 0]) = (keys_of(&name), []);
    let registry = ScriptRegistry::embedded();
    let refused = registry.run::<_, _, _, ()>(&mut connection, "wake", &keys[..1], &none).await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, Error::Redis(_)), "{refused:?}");
    let said = found(&refused).detail().unwrap().to_owned();
    assert_said(refused, &said);
}
