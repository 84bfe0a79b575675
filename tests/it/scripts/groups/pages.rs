//! Pages of groups in `inspect`.

use redis::Value;

use super::{Timed, start};
use crate::scripts::Outcome::Granted;
use test_support::scripts::id;

/// The name, the held weight and the number of queued requests; then the wait, the ID of the first
/// request, and the runtime cap.
type Group = (String, i64, i64, i64, String, i64);

/// Returns a page of the groups, and how many groups there are.
fn page(semaphore: &mut Timed, offset: usize, count: usize) -> (i64, Vec<Group>) {
    let reply = semaphore.call("inspect", &format!("0 0 0 0 {offset} {count}"));
    let mut reply: Vec<Value> = redis::from_redis_value(reply.unwrap()).unwrap();
    let (_, total, groups): (i64, _, _) = redis::from_redis_value(reply.remove(10)).unwrap();
    (total, groups)
}

#[test]
fn pages_of_any_size_contain_all_groups_that_hold_permits() {
    // The weight without a group decides where the member '*' stands: after, among or before the
    // groups.
    for plain in [1, 5, 20] {
        let mut semaphore = start();
        let mut hold = |request: String| {
            assert!(matches!(semaphore.acquire_one(100, &request), Granted { .. }));
        };
        hold(format!("plain {plain} 60000 try"));
        for group in 0..7 {
            (0..=group).for_each(|n| hold(format!("held{group}x{n}@g{group},1,0 1 60000 try")));
        }
        for count in 1..=8 {
            let mut seen = Vec::new();
            for offset in (0..7).step_by(count) {
                let (total, page) = page(&mut semaphore, offset, count);
                assert_eq!(total, 7);
                assert_eq!(page.len(), count.min(7 - offset), "{count} {offset}: {page:?}");
                for (name, held, queued, ..) in page {
                    assert_eq!((&*name, queued), (&*format!("g{}", held - 1), 0));
                    seen.push(name);
                }
            }
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len(), 7, "pages of {count} groups: {seen:?}");
        }
    }
}

#[test]
fn a_page_of_one_group_contains_the_only_group() {
    let names = |semaphore: &mut Timed| {
        page(semaphore, 0, 1).1.into_iter().map(|(name, ..)| name).collect::<Vec<_>>()
    };
    let mut semaphore = start();
    semaphore.acquire(1, "held 1 60000 try");
    semaphore.acquire(1, "plain 1 60000 wait");
    assert_eq!(names(&mut semaphore), [""], "requests without a group");

    let mut semaphore = start();
    semaphore.acquire(1, "held@a,1,0 1 60000 try");
    let key = id("N", "operator", 0, 60_000, "cap");
    semaphore.ok("limit", &format!("declare 1 cap 5 b {key}"));
    assert_eq!(names(&mut semaphore), ["a", "b"], "a runtime cap");
}

#[test]
fn a_group_does_not_wait_after_its_last_request_was_canceled() {
    let mut semaphore = start();
    semaphore.acquire(1, "held@a,1,0 1 60000 try");
    for (name, group) in [("plain", ""), ("grouped", "@b,1,0")] {
        semaphore.acquire(1, &format!("{name}{group} 1 60000 wait"));
        assert_eq!(page(&mut semaphore, 0, 9).1.len(), 2, "{name}");
        semaphore.ok("release", &format!("return {name}"));
        let (total, groups) = page(&mut semaphore, 0, 9);
        assert_eq!((total, &*groups[0].0, groups.len()), (1, "a", 1), "{name}");
    }
}

#[test]
fn a_request_that_waited_before_the_first_group_leaves_no_turn_if_it_is_canceled() {
    let mut semaphore = start();
    semaphore.acquire(1, "held 1 60000 try");
    semaphore.acquire(1, "plain 1 60000 wait");
    semaphore.acquire(1, "grouped@b,1,0 1 60000 wait");
    semaphore.ok("release", "return plain");
    let (total, groups) = page(&mut semaphore, 0, 9);
    assert_eq!((total, &*groups[0].0, groups.len()), (1, "b", 1));
}
