//! Pages of groups in `inspect`.

use std::collections::BTreeSet;

use redis::Value;

use super::start;
use crate::scripts::Outcome::Granted;

type Groups = (i64, i64, Vec<(String, i64, i64, i64, String, i64)>);

#[test]
fn pages_of_any_size_contain_all_groups_that_hold_permits() {
    // The place of the member '*' among the groups depends on the weights.
    for weight in [1, 3] {
        let mut semaphore = start();
        for group in 0..7 {
            let request = format!("held{group}@g{group},1,0 {weight} 60000 try");
            assert!(matches!(semaphore.acquire_one(100, &request), Granted { .. }));
        }
        for count in 1..=8 {
            let mut seen = BTreeSet::new();
            for offset in (0..7).step_by(count) {
                let reply = semaphore.call("inspect", &format!("0 0 0 0 {offset} {count}"));
                let mut reply: Vec<Value> = redis::from_redis_value(reply.unwrap()).unwrap();
                let (_, total, page): Groups = redis::from_redis_value(reply.remove(10)).unwrap();
                assert_eq!(total, 7);
                // A page may begin with the last group of the page before.
                assert!(page.len() <= count + 1, "{count} {offset}: {page:?}");
                assert!(page.iter().all(|group| (group.1, group.2) == (weight, 0)), "{page:?}");
                seen.extend(page.into_iter().map(|group| group.0));
            }
            assert_eq!(seen.len(), 7, "pages of {count} groups: {seen:?}");
        }
    }
}
