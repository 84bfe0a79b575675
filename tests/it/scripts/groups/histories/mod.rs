//! Random histories of calls, which an independent ledger checks. The ledger knows only requests,
//! replies and messages, and none of the rules by which the scripts choose the next group.
//!
//! `HISTORIES` sets their number, and `HISTORY_SEED` selects them.

mod driver;
mod ledger;

use driver::Driver;

#[test]
fn random_histories_keep_shares_order_and_caps_and_nobody_who_fits_waits() {
    let setting = |name: &str| std::env::var(name).ok().map(|value| value.parse().unwrap());
    let seed = setting("HISTORY_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let (mut granted, mut worst) = (0, 0.0_f64);
    for seed in seed..seed + setting("HISTORIES").unwrap_or(40) {
        println!("HISTORY_SEED={seed} HISTORIES=1");
        let mut driver = Driver::start(seed);
        (0..400).for_each(|_| driver.step());
        (granted, worst) = (granted + driver.ledger.grants, worst.max(driver.ledger.worst));
    }
    println!("{granted} grants; the shares differed by up to {worst:.3} of the bound");
}
