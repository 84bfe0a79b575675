//! Tests that a waiting group gets its share of the permits.

use super::super::bounds::many;
use super::{Timed, holders, start};

/// Releases the permit, and returns the name of the request that the permit is granted to.
fn pass_on(semaphore: &mut Timed, held: &str) -> String {
    let before = holders(semaphore);
    semaphore.ok("release", &format!("return {held}"));
    let after = holders(semaphore);
    after.into_iter().find(|name| !before.contains(name)).unwrap()
}

/// Starts a semaphore with a limit of 1, whose permit "m0" is held. If `is_late`, the virtual time is
/// so late that the next number is 256 later.
fn start_with_one_permit(is_late: bool) -> Timed {
    let mut semaphore = start();
    semaphore.acquire(1, "m0@m,1,0 1 600000 wait");
    if is_late {
        let state = semaphore.key("state");
        semaphore.command::<()>(&format!("HSET {state} virtual {}", 1_u64 << 60));
    }
    semaphore
}

/// While "m" has a backlog, one new group arrives for each permit. When "m" was granted a permit,
/// only the groups that wait now may come before the next grant to "m".
#[test]
fn new_groups_without_end_do_not_starve_a_waiting_group() {
    for (new, is_late) in [("a", false), ("z", false), ("a", true), ("z", true)] {
        let mut semaphore = start_with_one_permit(is_late);
        semaphore.acquire(1, &many(99, "m-%@m,1,0 1 600000 wait"));
        let (mut held, mut waiting, mut next_before) = ("m0".to_owned(), 0, 20);
        for round in 0..400 {
            let arrivals = if round == 0 { 10 } else { 1 };
            for number in 0..arrivals {
                let name = format!("{new}{round}-{number}");
                semaphore.acquire(1, &format!("{name}@{name},1,0 1 600000 wait"));
            }
            held = pass_on(&mut semaphore, &held);
            waiting += arrivals - i32::from(!held.starts_with('m'));
            if held.starts_with('m') {
                next_before = round + waiting + 2;
            }
            assert!(round < next_before, "{new}: no grant in the round {round}");
        }
    }
}

#[test]
fn waiting_groups_take_turns_at_any_virtual_time() {
    for is_late in [false, true] {
        let mut semaphore = start_with_one_permit(is_late);
        for group in ["a", "b"] {
            semaphore.acquire(1, &many(20, &format!("{group}%@{group},1000,0 1 600000 wait")));
        }
        let mut held = "m0".to_owned();
        for round in 0..40 {
            held = pass_on(&mut semaphore, &held);
            let group = ["a", "b"][round % 2];
            assert!(held.starts_with(group), "late: {is_late}, round {round}: {held}");
        }
    }
}

/// Each group at its cap holds one permit, and queues its next request as soon as the last one was
/// granted. Such a group always was at its cap when its request arrived.
#[test]
fn groups_at_their_caps_do_not_starve_a_waiting_group() {
    for limit in [1, 4] {
        let mut semaphore = start();
        let ask = |semaphore: &mut Timed, group: &str, number: usize| {
            let request = format!("{group}-{number}@{group},1,1 1 600000 wait");
            semaphore.acquire(limit, &request);
        };
        let capped: Vec<_> = (0..limit).map(|number| format!("c{number}")).collect();
        for number in 0..2 {
            capped.iter().for_each(|group| ask(&mut semaphore, group, number));
        }
        semaphore.acquire(limit, &many(100, "m%@m,1,0 1 600000 wait"));
        let (mut granted, groups) = (0, capped.len() + 1);
        for round in 2..20 * groups {
            let all = holders(&mut semaphore);
            let group = &capped[round % capped.len()];
            let of_group = all.iter().find(|name| name.starts_with(&**group));
            let held = of_group.unwrap_or(&all[0]);
            match pass_on(&mut semaphore, held).split_once('-') {
                Some((group, _)) => ask(&mut semaphore, group, round),
                None => granted += 1,
            }
        }
        assert!(granted >= 18, "limit {limit}: {granted} grants in 20 rounds of {groups} groups");
    }
}

/// After each grant, "x" asks for its next permit. Its last turn has not ended then, so "x" comes
/// no earlier than the group with a backlog.
#[test]
fn a_group_that_asks_after_each_grant_gets_no_more_than_its_share() {
    let mut semaphore = start();
    semaphore.acquire(3, "x0@x,1,0 3 600000 wait x1@x,1,0 3 600000 wait");
    semaphore.acquire(3, &many(30, "m%@m,1,0 3 600000 wait"));
    let (mut held, mut granted) = ("x0".to_owned(), 0);
    for round in 2..42 {
        held = pass_on(&mut semaphore, &held);
        if held.starts_with('x') {
            semaphore.acquire(3, &format!("x{round}@x,1,0 3 600000 wait"));
            granted += 1;
        }
    }
    assert!((19..=21).contains(&granted), "{granted} of 40 grants");
}
