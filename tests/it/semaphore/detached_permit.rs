//! Tests of the texts of a permit that moves to another process.

use std::time::Duration;

use redis_semaphore::{DetachedPermit, Error, SemaphoreClient};

use test_support::server::{shared_url, unique_name};

/// A duration that is longer than any test.
const LONG: Duration = Duration::from_secs(300);

/// Any process that has the ID and the token can adopt the permit.
#[tokio::test]
async fn debug_output_of_a_detached_permit_hides_its_id_and_token() {
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let name = unique_name();
    let semaphore = client.semaphore(&*name).limit(1).build().unwrap();
    let detached = semaphore.acquire().await.unwrap().detach();
    let printed = format!("{detached:?}");
    assert!(printed.contains(&name), "{printed}");
    for secret in [detached.id(), &detached.fencing_token().to_string()] {
        assert!(!printed.contains(secret), "{printed}");
    }
    semaphore.adopt(detached).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn the_text_of_a_detached_permit_is_parsed_and_other_texts_are_rejected() {
    let name = "a name: with \"blanks\" and ünïcode";
    let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
    let semaphore = client.semaphore(name).limit(3).lease(LONG).build().unwrap();
    let permit = semaphore.acquire_many(2).await.unwrap();
    let (id, token) = (permit.id().to_owned(), permit.fencing_token());
    let detached = permit.detach();
    let read: DetachedPermit = detached.to_string().parse().unwrap();
    assert_eq!(read, detached);
    assert_eq!((read.id(), read.name()), (&*id, name));
    assert_eq!((read.fencing_token(), read.weight()), (token, 2));
    for strange in [
        "",
        "x",
        &id,
        &format!("{id} {token} 1000"),
        &format!("{id} {token} 1000 "),
        &format!("{id} {token} 1000 with{{brace"),
        &format!("{id} {token} soon name"),
        &format!("{id} token 1000 name"),
        &format!("P:web:0:1000:{} {token} 1000 name", "0".repeat(22)),
        &format!("word {token} 1000 name"),
        // No script returns or accepts these numbers.
        &format!("{id} 9007199254740992 1000 name"),
        &format!("{id} 0 1000 name"),
        &format!("{id} 0{token} 1000 name"),
        &format!("{id} +{token} 1000 name"),
        &format!("{id} -1 1000 name"),
        &format!("{id} {token} +1000 name"),
        &format!("{id} {token} 01000 name"),
        &format!("{id} {token} {} name", LONG.as_millis() + 1),
        &format!("{id} {token} {} name", u64::MAX),
        &format!("P:web:1:604800001:{} {token} 1000 name", "0".repeat(22)),
        &format!("P:web:4294967296:1000:{} {token} 1000 name", "0".repeat(22)),
    ] {
        let refused = strange.parse::<DetachedPermit>();
        assert!(matches!(refused, Err(Error::Invalid { what: "permit", .. })), "{strange}");
        let reported = refused.unwrap_err().to_string();
        assert!(
            strange.len() < 10 || !reported.contains(&id),
            "the error contains the ID: {reported}"
        );
    }
    semaphore.adopt(read).await.unwrap().release().await.unwrap();
}

/// If a text can be parsed, the result prints the same text. All numbers are within the protocol's
/// ranges.
#[test]
fn every_text_that_parses_as_a_detached_permit_prints_unchanged() {
    let sound = "P:web.1:2:30000:9fJ2mQ0xV7sT1bLc8dWe2A 1795361222616821 29999 a name";
    let with = b"0123456789999 :+-.PSNx\n\xc3";
    let mut random = fastrand::Rng::with_seed(7);
    let mut read = 0;
    for _ in 0..200_000 {
        let mut text = sound.as_bytes().to_vec();
        for _ in 0..random.usize(1..4) {
            let (at, byte) = (random.usize(..text.len()), with[random.usize(..with.len())]);
            match random.u8(..3) {
                0 => text[at] = byte,
                1 => text.insert(at, byte),
                _ => _ = text.remove(at),
            }
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        let Ok(detached) = text.parse::<DetachedPermit>() else { continue };
        read += 1;
        assert_eq!(detached.to_string(), text);
        assert!((1..1 << 53).contains(&detached.fencing_token()), "{text}");
        assert!(
            detached.weight() > 0 && detached.expires_in() <= Duration::from_secs(604_800),
            "{text}"
        );
    }
    assert!(read > 1000, "too few texts were parsed: {read}");
}
