use redis::Commands;

use super::{fails, output_of};
use test_support::server::{connect, shared_admin_url, unique_name};

const TRADERS: u32 = 8;
const ITEMS: u32 = 24;
const FUNDS: i64 = 100;

#[tokio::test]
async fn trades_conserve_money_and_items_with_one_lock_and_with_item_locks() {
    let name = unique_name();
    let output = output_of("market", &[&name]).await;
    conserved(&format!("{name}-whole"));
    conserved(&format!("{name}-items"));

    let speed = |beginning| -> f64 {
        let line = output.lines().find_map(|line| line.strip_prefix(beginning)).expect(&output);
        line.strip_suffix(" trades per second").unwrap().trim().parse().unwrap()
    };
    let [whole, items] = ["one lock for the whole market: ", "one lock for each item: "].map(speed);
    assert!(whole > 0.0 && items > 0.0, "{output}");
}

fn conserved(name: &str) {
    let mut redis = connect(&shared_admin_url());
    let funds: Vec<i64> = redis.hvals(format!("{name}:funds")).unwrap();
    assert_eq!(funds.len(), TRADERS as usize);
    assert!(funds.iter().all(|funds| *funds >= 0), "{funds:?}");
    assert_eq!(funds.iter().sum::<i64>(), i64::from(TRADERS) * FUNDS);
    assert_ne!(funds, [FUNDS; TRADERS as usize], "no trader bought anything");

    let offers: Vec<String> = redis.zrange(format!("{name}:market"), 0, -1).unwrap();
    let mut items: Vec<u32> =
        offers.iter().map(|offer| offer.split('.').next().unwrap().parse().unwrap()).collect();
    for trader in 1..=TRADERS {
        items.extend(redis.smembers::<_, Vec<u32>>(format!("{name}:inventory:{trader}")).unwrap());
    }
    items.sort();
    assert_eq!(items, (1..=ITEMS).collect::<Vec<_>>(), "each item is in one place");
}

#[tokio::test]
async fn invalid_arguments_are_rejected_with_a_message() {
    fails("market", &["{x}"], 1, "no braces").await;
    fails("market", &["x", "one"], 2, "invalid value 'one'").await;
}
