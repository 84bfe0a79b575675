use redis::Commands;

use super::{fails, output_of};
use test_support::observer::Observer;
use test_support::server::{connect, shared_admin_url, unique_name};

#[tokio::test]
async fn all_pages_are_queried_and_the_semaphore_keeps_the_limit() {
    let name = unique_name();
    let output = output_of("pages", &["2", &name]).await;
    let sum: u64 = (1..=9500).map(|i| i * 7919 % 1000).sum();
    for title in ["blocking list", "redis-semaphore"] {
        for job in ["first", "second"] {
            let beginning = format!("{title}, {job} job: 12 pages in ");
            let line = output.lines().find(|line| line.starts_with(&beginning)).expect(&output);
            assert!(line.contains(&format!(", sum {sum}; ")), "{output}");
            let (_, most) = line.rsplit_once("; ").unwrap();
            let (most, too_many) = most.split_once(" of 2 at once").unwrap();
            let most: u32 = most.parse().unwrap();
            assert_eq!(too_many.is_empty(), most <= 2, "{output}");
            // The blocking list may admit more tasks if an unused wake-up remains in the list.
            assert!((1..=2).contains(&most) || title == "blocking list", "{output}");
        }
    }
    let left_over: u32 = connect(&shared_admin_url()).llen(format!("{name}:wake-ups")).unwrap();
    assert!(left_over >= 2, "each task that was admitted immediately leaves one: {left_over}");
    assert!(output.ends_with(&format!("list: {left_over} unused wake-ups are left over\n")));
    Observer::new(&shared_admin_url(), &name, 2).await.sees(0, 0).await;
}

#[tokio::test]
async fn invalid_arguments_are_rejected_with_a_message() {
    fails("pages", &["0"], 2, "0 is not in 1..").await;
}
