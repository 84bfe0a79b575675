//! Tests that `acquire_all` never deadlocks, because all calls acquire in one order and form no
//! circle.

use std::collections::HashSet;
use std::time::Duration;

use redis_semaphore::{Semaphore, SemaphoreClient, acquire_all};

use test_support::observer::{Observer, in_time};
use test_support::scripts::keys_of;
use test_support::server::Server;

/// The names in the byte order of their keys. The byte order of the names is different, because a
/// key does not end with the name.
const IN_ORDER: [&str; 3] = ["B", "a-1", "a"];

#[test]
fn the_keys_of_the_test_names_are_sorted_but_the_names_are_not() {
    assert!(IN_ORDER.is_sorted_by_key(|name| keys_of(name)[0].clone()) && !IN_ORDER.is_sorted());
}

async fn client(server: &Server) -> [Semaphore; 3] {
    let semaphores = SemaphoreClient::connect(&server.url()).await.unwrap();
    let lease = Duration::from_secs(600); // longer than any test takes
    IN_ORDER.map(|name| semaphores.semaphore(name).limit(1).lease(lease).build().unwrap())
}

/// The requests may be given in any order. The call waits for one semaphore after the other, in key
/// order, and queues for no later semaphore while it waits.
#[tokio::test]
async fn acquire_all_waits_for_one_semaphore_at_a_time_in_key_order() {
    let server = Server::start();
    let mut observers = Vec::new();
    for name in IN_ORDER {
        observers.push(Observer::new(&server.url(), name, 1).await);
    }
    let (others, semaphores) = (client(&server).await, client(&server).await);
    for given in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut held = Vec::new();
        for other in &others {
            held.push(other.acquire().await.unwrap());
        }
        let requests = given.map(|number| semaphores[number].request());
        let waiting = tokio::spawn(acquire_all(requests));
        for (number, permit) in held.into_iter().enumerate() {
            observers[number].sees(1, 1).await;
            for behind in &observers[number + 1..] {
                assert_eq!(behind.look().await.queued, 0, "{given:?}");
            }
            permit.release().await.unwrap();
        }
        in_time("all of them", waiting).await.unwrap().unwrap().release().await.unwrap();
    }
}

/// Three callers of three semaphores with limit 1. Each caller requests its semaphores one after
/// the other, and waits for each permit. A caller that holds all its permits releases these permits
/// and starts again.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Callers {
    /// The number of semaphores that each caller has requested.
    asked: [usize; 3],
    /// For each semaphore, the callers that have requested it. The first caller holds the permit.
    lines: [Vec<usize>; 3],
}

impl Callers {
    /// Returns the state after the caller's next step, or `None` if the caller waits.
    fn after(&self, caller: usize, names: &[usize]) -> Option<Self> {
        let (mut after, asked) = (self.clone(), self.asked[caller]);
        if asked > 0 && self.lines[names[asked - 1]][0] != caller {
            return None;
        }
        match names.get(asked) {
            Some(next) => {
                after.asked[caller] += 1;
                after.lines[*next].push(caller);
            }
            None => {
                after.asked[caller] = 0;
                after.lines.iter_mut().for_each(|line| line.retain(|other| *other != caller));
            }
        }
        Some(after)
    }

    /// Returns whether some schedule ends with all callers waiting.
    fn may_stand_still(names: [&[usize]; 3]) -> bool {
        let (mut seen, mut next) = (HashSet::new(), vec![Self::default()]);
        while let Some(callers) = next.pop() {
            let after = (0..3).filter_map(|caller| callers.after(caller, names[caller]));
            let before = next.len();
            next.extend(after);
            if next.len() == before {
                return true;
            }
            let after = next.split_off(before);
            next.extend(after.into_iter().filter(|callers| seen.insert(callers.clone())));
        }
        false
    }
}

/// Returns all non-empty sets of semaphores, each in key order.
fn all_sets() -> Vec<Vec<usize>> {
    (1..8).map(|set| (0..3).filter(|number| set >> number & 1 == 1).collect()).collect()
}

/// Tries all sets of semaphores for three callers, and all schedules. In key order no schedule
/// deadlocks, but one caller with another order is enough for a deadlock.
#[test]
fn no_schedule_of_callers_in_key_order_ends_in_a_deadlock() {
    let sets = all_sets();
    let reversed = sets.iter().map(|set| set.iter().rev().copied().collect::<Vec<_>>());
    let mut circles = 0;
    for (first, reversed) in sets.iter().zip(reversed) {
        for (second, third) in
            sets.iter().flat_map(|two| sets.iter().map(move |three| (two, three)))
        {
            let sets = [first, second, third];
            assert!(!Callers::may_stand_still(sets.map(Vec::as_slice)), "{sets:?}");
            let one_reversed = [&reversed, second, third].map(Vec::as_slice);
            circles += u32::from(Callers::may_stand_still(one_reversed));
        }
    }
    assert!(circles > 0, "no reversed order ends in a deadlock");
}
