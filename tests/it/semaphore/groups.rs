//! Groups: shares, caps, and clients that do not use groups. The tests run on a server and in
//! memory.

use std::collections::BTreeSet;
use std::time::Duration;

use redis_semaphore::{Error, Group, GroupInspection, Permit, Semaphore, SemaphoreClient};
use tokio::task::JoinSet;

use test_support::observer::{Observer, in_time};
use test_support::server::{shared_url, unique_name};

async fn clients() -> [SemaphoreClient; 2] {
    [SemaphoreClient::connect(&shared_url()).await.unwrap(), SemaphoreClient::local().unwrap()]
}

fn build(client: &SemaphoreClient, limit: u32) -> Semaphore {
    client.semaphore(unique_name()).limit(limit).build().unwrap()
}

/// Queues a request. The result is the group's name and its permit.
async fn queue(
    waits: &mut JoinSet<(&'static str, Permit)>,
    observer: &Observer,
    semaphore: &Semaphore,
    (name, share): (&'static str, u16),
) {
    let acquire = semaphore.request().group(Group::new(name).share(share)).acquire();
    waits.spawn(async move { (name, acquire.await.unwrap()) });
    observer.sees(1, waits.len() as u64).await;
}

/// Releases one permit after the other, and returns the groups in the order of their grants.
async fn serve(mut waits: JoinSet<(&'static str, Permit)>, first: Permit) -> String {
    let (mut held, mut order) = (first, String::new());
    while !waits.is_empty() {
        held.release().await.unwrap();
        let (name, next) = in_time("the next grant", waits.join_next()).await.unwrap().unwrap();
        order += &name[..1];
        held = next;
    }
    held.release().await.unwrap();
    order
}

#[tokio::test]
async fn waiting_groups_are_granted_permits_in_proportion_to_their_shares() {
    for client in clients().await {
        let semaphore = build(&client, 1);
        let (first, mut waits) = (semaphore.acquire().await.unwrap(), JoinSet::new());
        let observer = Observer::of(semaphore.clone());
        for _ in 0..6 {
            queue(&mut waits, &observer, &semaphore, ("a", 1)).await;
        }
        for _ in 0..6 {
            queue(&mut waits, &observer, &semaphore, ("b", 2)).await;
        }
        let order = serve(waits, first).await;
        assert_eq!(order.len(), 12, "{order}");
        // While both groups wait, "b" is granted two permits for each permit of "a".
        for granted in 1..=9 {
            let a = order[..granted].matches('a').count() as f64;
            let b = order[..granted].matches('b').count() as f64;
            assert!((a - b / 2.0).abs() <= 1.5, "{order}");
        }
    }
}

/// Without groups, the small tenant would wait behind all requests of the flood.
#[tokio::test]
async fn a_flood_does_not_delay_another_group() {
    for client in clients().await {
        let semaphore = build(&client, 1);
        let (first, mut waits) = (semaphore.acquire().await.unwrap(), JoinSet::new());
        let observer = Observer::of(semaphore.clone());
        for _ in 0..20 {
            queue(&mut waits, &observer, &semaphore, ("flood", 1)).await;
        }
        queue(&mut waits, &observer, &semaphore, ("small", 1)).await;
        let order = serve(waits, first).await;
        assert!(order.find('s').unwrap() <= 2, "{order}");
    }
}

#[tokio::test]
async fn a_group_at_its_cap_waits_and_delays_no_other_group() {
    for client in clients().await {
        let semaphore = client.semaphore(unique_name()).limit(3).group_cap(1).build().unwrap();
        let held = semaphore.request().group("a").acquire().await.unwrap();
        let capped = semaphore.request().group("a").timeout(Duration::from_millis(1)).acquire();
        let error = capped.await.unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        assert!(semaphore.request().group("a").try_acquire().await.unwrap().is_none());

        let waiting = tokio::spawn(semaphore.request().group("a").acquire());
        Observer::of(semaphore.clone()).sees(1, 1).await;
        let other = semaphore.request().group("b").try_acquire().await.unwrap().unwrap();
        let none = semaphore.try_acquire().await.unwrap().unwrap();
        let inspection = semaphore.inspect().await.unwrap();
        assert_eq!(inspection.waiters[0].group(), Some("a"));
        let groups: Vec<_> = inspection.holders.iter().map(|holder| holder.group()).collect();
        assert!([Some("a"), Some("b"), None].iter().all(|group| groups.contains(group)));
        none.release().await.unwrap();
        other.release().await.unwrap();

        // A larger cap applies to new requests.
        held.release().await.unwrap();
        let next = in_time("the next grant", waiting).await.unwrap().unwrap();
        let more = semaphore.request().group(Group::new("a").cap(2)).try_acquire().await.unwrap();
        more.unwrap().release().await.unwrap();
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn invalid_groups_are_rejected_with_the_reason() {
    for client in clients().await {
        let semaphore = build(&client, 9);
        let long = "x".repeat(65);
        for (group, reason) in [
            (Group::new(""), "not \"\""),
            (Group::new(&*long), "1 to 64 letters"),
            (Group::new("a:b"), "not \"a:b\""),
            (Group::new("a,1,1"), "not \"a,1,1\""),
            (Group::new("a").share(0), "a share from 1 to 1000, not 0"),
            (Group::new("a").share(1001), "a share from 1 to 1000, not 1001"),
            (Group::new("a").cap(1), "a cap of at least the weight 2, not 1"),
        ] {
            let request = semaphore.request().weight(2).group(group);
            let refused = [
                request.clone().acquire().await.unwrap_err(),
                request.try_acquire().await.unwrap_err(),
            ];
            for error in refused {
                let is_meant = matches!(&error, Error::Invalid { what: "group", .. });
                assert!(is_meant && error.to_string().contains(reason), "{error}");
            }
        }
        assert_eq!(semaphore.available_permits().await.unwrap(), 9);
    }
}

/// The client that adopts a permit continues to count against the cap of its group.
#[tokio::test]
async fn a_detached_permit_keeps_its_group() {
    for client in clients().await {
        let semaphore = build(&client, 5);
        let group = || Group::new("a").cap(1);
        let permit = semaphore.request().group(group()).acquire().await.unwrap();
        let adopted = semaphore.adopt(permit.detach()).await.unwrap();
        assert_eq!(semaphore.inspect().await.unwrap().holders[0].group(), Some("a"));
        assert!(semaphore.request().group(group()).try_acquire().await.unwrap().is_none());
        adopted.release().await.unwrap();
        let next = semaphore.request().group(group()).try_acquire().await.unwrap();
        next.unwrap().release().await.unwrap();
    }
}

/// Clients whose requests have no group name four keys, until a script asks for all keys.
#[tokio::test]
async fn clients_without_groups_use_a_semaphore_that_has_groups() {
    let name = unique_name();
    let build = async || {
        let client = SemaphoreClient::connect(&shared_url()).await.unwrap();
        client.semaphore(&name).limit(2).build().unwrap()
    };
    let early = build().await;
    let permit = early.acquire().await.unwrap();
    let grouped = build().await;
    let held = grouped.request().group("a").acquire().await.unwrap();
    let waiting = tokio::spawn(grouped.request().group("a").acquire());
    let observer = Observer::of(build().await);
    observer.sees(2, 1).await;
    assert!(build().await.try_acquire().await.unwrap().is_none());
    build().await.revoke(held.id()).await.unwrap();
    let next = in_time("the next grant", waiting).await.unwrap().unwrap();
    permit.refresh().await.unwrap();
    permit.release().await.unwrap();
    build().await.add_permits(1).await.unwrap();
    let last = build().await.acquire().await.unwrap();
    drop(last);
    assert_eq!(build().await.inspect().await.unwrap().limit, 3);
    next.release().await.unwrap();
    observer.sees(0, 0).await;
}

#[tokio::test]
async fn inspect_groups_returns_what_each_group_holds_and_waits_for() {
    for client in clients().await {
        let semaphore = build(&client, 4);
        assert_eq!(semaphore.inspect_groups().await.unwrap(), []);
        let heavy = semaphore.request().group(Group::new("b").cap(3)).weight(3);
        let held = [heavy.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
        let observer = Observer::of(semaphore.clone());
        let mut waits = JoinSet::new();
        for (number, (name, share)) in [("c", 5), ("b", 2), ("b", 7)].into_iter().enumerate() {
            let group = Group::new(name).share(share).cap(3);
            let acquire = semaphore.request().group(group).acquire();
            waits.spawn(async move { acquire.await.unwrap() });
            observer.sees(4, number as u64 + 1).await;
        }
        let groups = semaphore.inspect_groups().await.unwrap();
        let name = |group: &GroupInspection| group.name.clone().unwrap_or_default();
        let shown = |group: &GroupInspection| {
            format!("{} {} {} {:?}", name(group), group.held, group.queued, group.share)
        };
        let shown: Vec<_> = groups.iter().map(shown).collect();
        assert_eq!(shown, ["c 0 1 Some(5)", "b 3 2 Some(2)", " 1 0 None"]);
        assert!(groups.iter().all(|group| group.waited.is_some() == (group.queued > 0)));
        assert_eq!(groups[0].cap, Some(3));
        assert_eq!(semaphore.inspect().await.unwrap().queued_in_groups, 3);
        drop(held);
        while waits.join_next().await.is_some() {}
    }
}

#[tokio::test]
async fn inspect_groups_returns_hundreds_of_groups() {
    for client in clients().await {
        let semaphore = build(&client, 250);
        let mut permits = Vec::new();
        for number in 0..250 {
            let group = format!("tenant-{number}");
            permits.push(semaphore.request().group(group).acquire().await.unwrap());
        }
        let names = |groups: Vec<GroupInspection>| {
            let names: BTreeSet<_> = groups.into_iter().filter_map(|group| group.name).collect();
            names.len()
        };
        assert_eq!(names(semaphore.inspect_groups().await.unwrap()), 250);
        let acquire = semaphore.request().group("late").acquire();
        let mut acquire = Box::pin(acquire.into_future());
        let observer = Observer::of(semaphore.clone());
        tokio::select! {
            _ = &mut acquire => panic!("no permit is free"),
            _ = observer.sees(250, 1) => {}
        }
        assert_eq!(names(semaphore.inspect_groups().await.unwrap()), 251);
    }
}

#[tokio::test]
async fn a_runtime_cap_of_0_pauses_a_group_until_it_is_cleared() {
    for client in clients().await {
        let semaphore = build(&client, 3);
        let held = semaphore.request().group("a").acquire().await.unwrap();
        semaphore.set_group_cap("a", 0).await.unwrap();
        let waiting = tokio::spawn(semaphore.request().group(Group::new("a").cap(3)).acquire());
        Observer::of(semaphore.clone()).sees(1, 1).await;
        assert!(semaphore.request().group("b").try_acquire().await.unwrap().is_some());
        semaphore.set_group_cap("idle", 7).await.unwrap();
        let groups = semaphore.inspect_groups().await.unwrap();
        let caps = groups.iter().map(|group| (group.name.as_deref().unwrap(), group.runtime_cap));
        let caps: Vec<_> = caps.collect();
        assert_eq!(caps, [("a", Some(0)), ("idle", Some(7))]);
        // A runtime limit and runtime caps are independent.
        semaphore.set_limit(5).await.unwrap();
        semaphore.clear_limit().await.unwrap();
        assert!(semaphore.request().group("a").try_acquire().await.unwrap().is_none());
        semaphore.clear_group_cap("a").await.unwrap();
        drop((held, in_time("the grant", waiting).await.unwrap().unwrap()));
        let groups = semaphore.inspect_groups().await.unwrap();
        assert!(groups.iter().all(|group| group.name.as_deref() != Some("a")), "{groups:?}");
    }
}

#[tokio::test]
async fn a_semaphore_has_at_most_100_runtime_caps() {
    for client in clients().await {
        let semaphore = build(&client, 1);
        for number in 0..100 {
            semaphore.set_group_cap(&format!("tenant-{number}"), 1).await.unwrap();
        }
        semaphore.set_group_cap("tenant-7", 2).await.unwrap();
        let error = semaphore.set_group_cap("one-more", 1).await.unwrap_err();
        assert!(error.to_string().contains("100 other groups have runtime caps"), "{error}");
        assert!(matches!(semaphore.set_group_cap("a:b", 1).await, Err(Error::Invalid { .. })));
        semaphore.clear_group_cap("tenant-7").await.unwrap();
        semaphore.set_group_cap("one-more", 1).await.unwrap();
    }
}
