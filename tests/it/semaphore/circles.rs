//! Why `acquire_all` never ends in a circle: it acquires in one order, which has none.

use std::collections::HashSet;
use std::time::Duration;

use redis_semaphore::{Semaphore, SemaphoreClient, acquire_all};

use test_support::observer::{Observer, in_time};
use test_support::scripts::keys_of;
use test_support::server::Server;

/// By the bytes of their keys: those of names are others, as something follows them in a key.
const IN_ORDER: [&str; 3] = ["B", "a-1", "a"];

#[test]
fn keys_have_that_order() {
    assert!(IN_ORDER.is_sorted_by_key(|name| keys_of(name)[0].clone()) && !IN_ORDER.is_sorted());
}

async fn client(server: &Server) -> [Semaphore; 3] {
    let semaphores = SemaphoreClient::connect(&server.url()).await.unwrap();
    let lease = Duration::from_secs(600); // no test takes so long
    IN_ORDER.map(|name| semaphores.semaphore(name).limit(1).lease(lease).build().unwrap())
}

/// Whatever order they are given in, it waits for one after the other in that order, and for
/// nothing behind what it waits for.
#[tokio::test]
async fn the_order_is_that_of_the_bytes_of_the_keys() {
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

/// Three callers at three semaphores of limit 1. Each asks for its names one after the other, waits
/// where it is not the first, and leaves all of them when it has all; again and again.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Callers {
    /// Of how many of its names each has asked.
    asked: [usize; 3],
    /// Who has asked, by name: the first holds.
    lines: [Vec<usize>; 3],
}

impl Callers {
    /// What comes of the next step of a caller. `None`: it waits.
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

    /// Whether some schedule of their steps ends with all of them waiting.
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

/// Numbers of names, in order: all sets that are not empty.
fn all_sets() -> Vec<Vec<usize>> {
    (1..8).map(|set| (0..3).filter(|number| set >> number & 1 == 1).collect()).collect()
}

/// All sets of names of three callers, and all schedules: that order has no circle, whereas one
/// caller with another order is enough for one.
#[test]
fn no_schedule_of_callers_ends_in_a_circle() {
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
    assert!(circles > 0, "this test would not find one");
}
