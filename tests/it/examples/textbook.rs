use std::collections::{BTreeMap, BTreeSet};

use redis::Commands;

use super::{fails, output_of};
use test_support::observer::Observer;
use test_support::server::{connect, shared_admin_url, unique_name};

const ROUNDS: usize = 10;

/// Returns pairs of a name and an action, in the order in which Redis received them. Also returns
/// the output.
async fn play(problem: &str, name: &str) -> (Vec<(String, String)>, String) {
    let output = output_of("textbook", &[problem, name]).await;
    let lines: Vec<String> =
        connect(&shared_admin_url()).lrange(format!("{name}:history"), 0, -1).unwrap();
    let words = |line: String| {
        let (who, what) = line.split_once(' ').unwrap();
        (who.to_owned(), what.to_owned())
    };
    (lines.into_iter().map(words).collect(), output)
}

fn count<'a>(words: impl Iterator<Item = &'a String>) -> BTreeMap<&'a str, usize> {
    words.fold(BTreeMap::new(), |mut counts, word| {
        *counts.entry(word.as_str()).or_default() += 1;
        counts
    })
}

async fn nobody_is_left(name: &str, what: &str, limit: u32) {
    let observer = Observer::new(&shared_admin_url(), &format!("{name}-{what}"), limit).await;
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn the_plate_holds_at_most_one_fruit_and_each_child_takes_its_own_kind() {
    let name = unique_name();
    let (story, _) = play("plate", &name).await;
    let eaters = BTreeMap::from([("apple", "daughter"), ("orange", "son")]);
    let cooks = BTreeMap::from([("apple", "father"), ("orange", "mother")]);
    for step in story.chunks(2) {
        let [(cook, puts), (eater, takes)] = step else { panic!("the plate is not empty") };
        let fruit = puts.strip_prefix("puts an ").expect(puts);
        assert_eq!(takes.strip_prefix("takes an "), Some(fruit));
        assert_eq!((cook.as_str(), eater.as_str()), (cooks[fruit], eaters[fruit]));
    }
    let each = ["daughter", "father", "mother", "son"].map(|who| (who, ROUNDS));
    assert_eq!(count(story.iter().map(|(who, _)| who)), BTreeMap::from(each));
    for what in ["empty", "apple", "orange"] {
        nobody_is_left(&name, what, 1).await;
    }
}

#[tokio::test]
async fn the_buffer_never_overflows_and_each_product_is_taken_once() {
    let name = unique_name();
    let (story, output) = play("buffer", &name).await;
    let (mut buffer, mut most) = (0_i32, 0);
    let mut added = Vec::new();
    for (_, what) in &story {
        match what.strip_prefix("adds ") {
            Some(product) => {
                buffer += 1;
                added.push(product);
            }
            None => buffer -= 1,
        }
        assert!(buffer >= 0, "{story:?}");
        most = most.max(buffer);
    }
    assert!(most <= 3, "{most} at once");
    assert_eq!((buffer, added.len()), (0, 2 * ROUNDS));
    let taken: Vec<_> = output.lines().filter_map(|line| line.split_once(" has ")).collect();
    let each: BTreeSet<_> = taken.iter().map(|(_, product)| *product).collect();
    assert_eq!((taken.len(), each), (added.len(), added.into_iter().collect()));
    for what in ["spaces", "products"] {
        nobody_is_left(&name, what, 1).await;
    }
}

/// Returns the names of all active participants at each moment.
fn moments(story: &[(String, String)]) -> impl Iterator<Item = BTreeSet<&str>> {
    story.iter().scan(BTreeSet::new(), |at_it, (who, what)| {
        match what.as_str() {
            "begins" => assert!(at_it.insert(who.as_str()), "{who} began twice"),
            "ends" => assert!(at_it.remove(who.as_str()), "{who} ended twice"),
            other => panic!("{other}"),
        }
        Some(at_it.clone())
    })
}

#[tokio::test]
async fn a_writer_is_alone_and_at_most_four_readers_read_at_once() {
    let name = unique_name();
    let (story, _) = play("readers", &name).await;
    assert_eq!(story.len(), 2 * 6 * ROUNDS);
    for at_it in moments(&story) {
        let is_written = at_it.iter().any(|who| who.starts_with("writer"));
        assert!(!is_written || at_it.len() == 1, "{at_it:?}");
    }
    let most = moments(&story).map(|at_it| at_it.len()).max();
    assert!(most <= Some(4), "{most:?} at once");
    nobody_is_left(&name, "access", 4).await;
}

#[tokio::test]
async fn no_philosopher_starves_and_no_fork_is_in_two_hands() {
    let name = unique_name();
    let (story, _) = play("philosophers", &name).await;
    assert_eq!(story.len(), 2 * 5 * ROUNDS);
    for at_it in moments(&story) {
        let places: Vec<u32> =
            at_it.iter().map(|who| who.rsplit_once('-').unwrap().1.parse().unwrap()).collect();
        for place in &places {
            assert!(!places.contains(&(place % 5 + 1)), "neighbors eat: {at_it:?}");
        }
    }
    nobody_is_left(&name, "room", 4).await;
    for fork in 0..5 {
        nobody_is_left(&name, &format!("fork-{fork}"), 1).await;
    }
}

#[tokio::test]
async fn invalid_arguments_are_rejected_with_a_message() {
    fails("textbook", &[], 2, "<PROBLEM>").await;
    fails("textbook", &["barber"], 2, "invalid value 'barber'").await;
    fails("textbook", &["plate", "{x}"], 1, "no braces").await;
}
