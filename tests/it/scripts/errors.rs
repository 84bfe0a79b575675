//! Tests of errors that do not concern the text of one argument. A call with an error changes
//! nothing.

use super::{Refusal, Timed};
use super::{fill, in_use, reported, script_names, semaphore_scripts, sound};
use test_support::scripts::{self, KEYS};

#[test]
fn exactly_four_keys_are_needed() {
    for script in script_names() {
        let mut semaphore = in_use();
        let keys = semaphore.keys.clone();
        let five = [keys.clone(), vec!["sem:{more}".to_owned()]].concat();
        let seven = [semaphore.all_keys.clone(), vec!["sem:{more}".to_owned()]].concat();
        for keys in [&keys[..0], &keys[..1], &keys[..3], &five, &seven] {
            let refusal = semaphore.refusal(script, keys, &sound(script));
            let count = keys.len();
            assert_eq!(refusal.code, "SEM_KEYS", "{script} with {count} keys");
            let says = "4 keys are needed, or 6 with groups, in this order: ";
            assert!(refusal.detail.starts_with(says), "{}", refusal.detail);
            assert!(refusal.detail.ends_with(&format!("; got {count}")), "{}", refusal.detail);
        }
    }
}

/// The error shows the first wrong key, and replaces characters that are not printable ASCII.
#[test]
fn the_error_shows_the_wrong_key() {
    let mut semaphore = in_use();
    let right = KEYS.map(|key| format!("sem:{{a}}:{key}"));
    let long = format!("sem:{{{}}}:queue", "n".repeat(50));
    for (at, key, shown) in [
        (0, "sem:a:permits", "sem:a:permits"),
        (0, "", ""),
        (1, "sem:{b}:queue", "sem:{b}:queue"),
        (1, &long, "sem:{nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"),
        (2, "sem:{a}:\n\u{e9}\"", "sem:{a}:???\""),
        (3, "sem:{a}:queue", "sem:{a}:queue"),
    ] {
        let mut keys = right.clone();
        keys[at] = key.to_owned();
        for script in script_names() {
            let refusal = semaphore.refusal(script, &keys, &sound(script));
            let says = format!("; got \"{shown}\" as KEYS[{}]", at + 1);
            assert!(refusal.detail.ends_with(&says), "{script} {key}: {}", refusal.detail);
        }
    }
}

/// If two keys of the same type were exchanged, a script would treat waiters as holders.
#[test]
fn keys_in_another_order_are_rejected() {
    let mut semaphore = in_use();
    let right = semaphore.keys.clone();
    let mut tried = 0;
    for order in 0..256_usize {
        let keys: Vec<_> = (0..4).map(|at| right[order >> (2 * at) & 3].clone()).collect();
        if keys == right {
            continue;
        }
        for script in script_names() {
            let refusal = semaphore.refusal(script, &keys, &sound(script));
            assert_eq!(refusal.code, "SEM_KEYS", "{script} {keys:?}: {refusal:?}");
        }
        tried += 1;
    }
    assert_eq!(tried, 255);
}

#[test]
fn keys_that_do_not_belong_to_one_semaphore_are_rejected() {
    let mut semaphore = in_use();
    let right = semaphore.keys.clone();
    let name = right[0].split(['{', '}']).nth(1).unwrap().to_owned();
    let strange = |key: &str| {
        [
            String::new(),
            key.replace(&name, "other"),
            key.replace("sem:", "other:"),
            key.replace("sem:", ""),
            key.replace(['{', '}'], ""),
            key.replace('{', "{{"),
            key.replace('}', "}}"),
            key.replace("sem:", "{a}:"),
            key.replace("clients", "waiting"),
            key.to_uppercase(),
            format!("{key} "),
            format!("{key}\n"),
            format!("{key}:{key}"),
            key[..key.len() - 1].to_owned(),
        ]
    };
    for at in 0..4 {
        for key in strange(&right[at]).into_iter().filter(|key| *key != right[at]) {
            let mut keys = right.clone();
            keys[at] = key;
            for script in script_names() {
                let refusal = semaphore.refusal(script, &keys, &sound(script));
                assert_eq!(refusal.code, "SEM_KEYS", "{script} {keys:?}: {refusal:?}");
            }
        }
    }
    // All keys have the same stem, but the stem is not `PREFIX:{NAME}`.
    for stem in ["sem:{}", "sem:name", "sem:{a}{b}", "{a}:sem:{b}", "sem:{a}:more", "sem{a}"] {
        let keys = KEYS.map(|key| format!("{stem}:{key}"));
        for script in script_names() {
            let refusal = semaphore.refusal(script, &keys, &sound(script));
            assert_eq!(refusal.code, "SEM_KEYS", "{script} {keys:?}: {refusal:?}");
        }
    }
}

#[test]
fn the_error_names_a_key_of_the_wrong_type() {
    let types = ["SET KEY text", "RPUSH KEY item", "SADD KEY item", "ZADD KEY 1 a", "HSET KEY a b"];
    for script in semaphore_scripts() {
        for key in KEYS {
            let wanted = if key == "state" { "HSET" } else { "ZADD" };
            let mut semaphore = in_use();
            semaphore.keys = semaphore.all_keys.clone();
            let name = semaphore.key(key);
            for write in types.iter().filter(|write| !write.starts_with(wanted)) {
                semaphore.command::<()>(&format!("DEL {name}"));
                semaphore.command::<()>(&write.replace("KEY", &name));
                let refusal = semaphore.refusal(script, &semaphore.keys.clone(), &sound(script));
                assert_eq!(refusal.code, "SEM_TYPE", "{script} after {write} on {key}");
                let kind = if wanted == "ZADD" { "sorted set" } else { "hash" };
                let text = format!("the key {name} exists and is not a {kind}");
                assert_eq!(refusal.detail, text, "{script} after {write}");
            }
        }
    }
}

/// The keys are valid. The error must not blame another application's keys.
#[test]
fn a_forbidden_command_is_not_reported_as_a_key_of_the_wrong_type() {
    for forbidden in ["hmget", "zcard"] {
        let mut semaphore = in_use();
        let user = format!("without-{forbidden}");
        semaphore.command::<()>(&format!("ACL SETUSER {user} on nopass ~* &* +@all -{forbidden}"));
        semaphore.command::<()>(&format!("AUTH {user} any"));
        for script in semaphore_scripts() {
            let refusal = semaphore.refusal(script, &semaphore.keys.clone(), &sound(script));
            assert_ne!(refusal.code, "SEM_TYPE", "{script} without {forbidden}");
            let said = format!("{} {}", refusal.code, refusal.detail);
            assert!(said.contains("permission") || said.contains("can't run"), "{script}: {said}");
        }
    }
}

#[test]
fn a_semaphore_of_another_protocol_version_is_rejected_and_unchanged() {
    for version in ["2", "3", "0", "2.0", "x"] {
        let mut semaphore = in_use();
        let state = semaphore.key("state");
        semaphore.command::<()>(&format!("HSET {state} version {version}"));
        for script in semaphore_scripts() {
            let refusal = semaphore.refusal(script, &semaphore.keys.clone(), &sound(script));
            assert_eq!(refusal.code, "SEM_VERSION", "{script}");
            let says = format!(
                "version {version}, these scripts use 1: upgrade the older client, or use \
                 another prefix"
            );
            assert!(refusal.detail.ends_with(&says), "{}", refusal.detail);
        }
    }
}

fn is_for_want_of_memory(Refusal { code, detail }: &Refusal) -> bool {
    // Redis 6.2 puts this code into the text of another error.
    code == "OOM" || detail.contains("-OOM ")
}

/// A server that is out of memory rejects a call that needs more memory. The rejected call has
/// written nothing. Releases are accepted, and the released permits are granted to waiters.
#[test]
fn a_call_that_a_full_server_rejects_changes_nothing() {
    let mut semaphore = Timed::start();
    let mut listener = semaphore.listen("channel");
    semaphore.acquire(3, "a 2 60000 try b 1 5000 try");
    semaphore.acquire_for(3, "channel publish 600000", "c 2 60000 wait d 1 60000 wait");
    semaphore.command::<()>("CONFIG SET maxmemory 1");
    for (script, arguments) in [
        ("acquire", "declare_if_unset 3 client poll 600000 new 1 60000 wait"),
        ("acquire", "declare 9 client poll 600000 new 1 60000 try"),
        ("acquire", "declare_if_unset 3 client poll 600000 a 2 60000 try"),
        ("acquire", "declare_if_unset 3 channel publish 600000 c 2 60000 wait"),
        ("limit", "declare 2"),
        ("limit", "declare 9"),
        ("limit", "set 2"),
        ("limit", "set 9"),
        ("limit", "add 0 more"),
        ("limit", "clear"),
    ] {
        let refusal = semaphore.refuses(script, arguments);
        assert!(is_for_want_of_memory(&refusal), "{script} {arguments}: {refusal:?}");
    }
    listener.expect_silence(&mut semaphore);
    // Holders can keep and release their permits.
    semaphore.pass(4000);
    let reply = semaphore.ok("refresh", "a 60000 b 5000");
    assert_eq!(reply[2..], [reply[0] + 60_000, reply[0] + 5000]);
    assert_eq!(semaphore.ok("release", "return a")[2..], [1]);
    assert!(reported(&mut listener).starts_with("timed\nc "));
    semaphore.pass(5000);
    semaphore.ok("wake", "");
    assert!(reported(&mut listener).starts_with("timed\nd "));
    assert_eq!(semaphore.inspect().holder_ids(), ["c", "d"].into());
    semaphore.assert_weights_agree();
}

/// A server that is out of memory lets a script continue if the script began with a removal.
#[test]
fn a_full_server_grants_a_permit_if_the_call_removes_an_expired_lease() {
    for arguments in ["new 2 60000 try", "new 2 60000 wait", "a 2 5000 try"] {
        let mut semaphore = Timed::start();
        semaphore.acquire(3, "a 2 5000 try b 1 60000 try");
        semaphore.command::<()>("CONFIG SET maxmemory 1");
        semaphore.pass(5000);
        assert!(semaphore.acquire_one(3, arguments).is_granted(), "{arguments}");
        assert_eq!(semaphore.inspect().held, 3);
        semaphore.assert_weights_agree();
        // No expired lease is left.
        let again = format!("declare_if_unset 3 client poll 600000 {arguments}");
        let refusal = semaphore.refuses("acquire", &again);
        assert!(is_for_want_of_memory(&refusal), "{refusal:?}");
    }
}

#[test]
fn a_full_server_grants_permits_freed_in_a_release_or_refresh_to_waiters() {
    let ways = [
        ("release", "return a"),
        ("release", "return nobody a b"),
        ("release", "forget b a"),
        ("refresh", "c 60000 b 1"),
    ];
    for (script, arguments) in ways {
        let mut semaphore = Timed::start();
        let mut listener = semaphore.listen("channel");
        semaphore.ok("limit", "declare 9");
        semaphore.acquire(9, "a 4 5000 try b 4 60000 try c 1 60000 try");
        semaphore.acquire_for(9, "channel publish 600000", "d 1 60000 wait e 1 60000 wait");
        semaphore.ok("release", "return c");
        assert!(reported(&mut listener).starts_with("timed\nd "));
        semaphore.acquire(9, "c 1 60000 wait");
        semaphore.command::<()>("CONFIG SET maxmemory 1");
        // The `refresh` case frees nothing unless a lease has expired.
        if script == "refresh" {
            semaphore.pass(5000);
        }
        semaphore.ok(script, arguments);
        let is_consumed = arguments.starts_with("forget");
        if is_consumed {
            // Forgotten permits are not available to waiters: "d" holds everything that remains.
            assert_eq!(semaphore.inspect().limit, 1);
            listener.expect_silence(&mut semaphore);
            semaphore.ok("release", "return d");
        }
        assert!(reported(&mut listener).starts_with("timed\ne "), "{script} {arguments}");
        semaphore.assert_weights_agree();
    }
}

/// After a step back of the clock, leases are shortened before permits are released.
#[test]
fn a_full_server_grants_freed_permits_after_its_clock_stepped_back() {
    for (script, arguments) in [("release", "return a"), ("refresh", "a 1"), ("wake", "")] {
        let mut semaphore = Timed::start();
        semaphore.acquire(1, "a 1 60000 try b 1 600000 wait");
        semaphore.pass(-3_600_000);
        semaphore.command::<()>("CONFIG SET maxmemory 1");
        semaphore.ok(script, arguments);
        semaphore.pass(60_000);
        semaphore.ok("wake", "");
        assert_eq!(semaphore.inspect().holder_ids(), ["b"].into(), "{script} {arguments}");
        semaphore.assert_weights_agree();
    }
}

/// A node whose slot is migrating aborts a script that accesses a key after emptying it.
#[test]
fn a_full_server_grants_freed_permits_while_its_slot_is_migrating() {
    for (script, arguments, passes) in [
        ("release", "return holder", 0),
        ("refresh", "holder 1", 1000),
        ("refresh", "other 60000 holder 1", 1000),
        ("wake", "", 1000),
    ] {
        let (mut semaphore, mut moving) = Timed::start_moving();
        let mut listener = semaphore.listen("client");
        semaphore.acquire(3, "holder 2 1000 try other 1 60000 try");
        semaphore.acquire_for(3, "client publish 600000", "waiter 1 60000 wait");
        semaphore.command::<()>("CONFIG SET maxmemory 1");
        semaphore.pass(passes);
        let arguments = semaphore.arguments(script, arguments);
        let keys = semaphore.keys.clone();
        let call = |scripts: &mut scripts::Scripts| scripts.call_with(script, &keys, &arguments);
        moving.response(&mut semaphore.scripts.raw, call).unwrap();
        assert_eq!(moving.served, 1, "{script} {arguments:?}");
        assert!(reported(&mut listener).starts_with("timed\nwaiter "), "{script} {arguments:?}");
        let inspection = semaphore.inspect();
        assert_eq!(inspection.holder_ids(), ["other", "waiter"].into(), "{script} {arguments:?}");
        assert_eq!((inspection.held, inspection.queued), (2, 0), "{script} {arguments:?}");
        semaphore.assert_weights_agree();
        let now = semaphore.now();
        semaphore.assert_expiries(now);
    }
}

/// Calls for the holders "heavy" and "light", for the waiters "first" and "second", and for a new
/// request.
const CALLS: [(&str, &str); 13] = [
    ("refresh", "heavy 600000"),
    ("refresh", "heavy 600000 light 1 nobody 1"),
    ("refresh", "nobody 1"),
    ("release", "return heavy"),
    ("release", "forget light nobody"),
    ("release", "return first"),
    ("release", "return nobody"),
    ("wake", ""),
    ("acquire", "declare_if_unset 5 client poll 600000 new 1 60000 try"),
    ("acquire", "declare_if_unset 5 client poll 600000 new 3 60000 try newer 4 60000 try"),
    ("acquire", "declare_if_unset 5 client poll 600000 new 1 60000 wait"),
    ("acquire", "declare_if_unset 5 client poll 600000 heavy 3 600000 try"),
    ("acquire", "declare_if_unset 5 client poll 600000 first 2 600000 wait"),
];

/// A former primary or a lagging replica lacks the latest data. A server that lacks data must not
/// return that a permit is lost or unknown, or that a request is not granted. After READONLY, a
/// client retries until the primary replies.
#[test]
fn a_server_that_rejects_writes_gives_no_final_reply() {
    let lags: [&[&str]; 5] = [
        &[],
        &["permits"],
        &["queue", "clients"],
        &["state"],
        &["permits", "queue", "clients", "state"],
    ];
    // No server listens on port 1.
    let refusals = [
        ("READONLY", "REPLICAOF 127.0.0.1 1"),
        ("NOREPLICAS", "CONFIG SET min-replicas-to-write 1"),
    ];
    for lag in lags {
        for (code, command) in refusals {
            let mut semaphore = Timed::start();
            fill(&mut semaphore);
            for key in lag {
                semaphore.lose(key);
            }
            semaphore.command::<()>(command);
            for (script, arguments) in CALLS {
                let refusal = semaphore.refuses(script, arguments);
                let is_said = refusal.code == code || refusal.detail.contains(code);
                assert!(is_said, "{script} {arguments} without {lag:?}: {refusal:?}");
            }
        }
    }
}

/// All leases have expired, and no call has removed them yet.
#[test]
fn a_read_only_server_rejects_calls_about_expired_leases() {
    let mut semaphore = Timed::start();
    fill(&mut semaphore);
    semaphore.command::<()>("REPLICAOF 127.0.0.1 1");
    semaphore.pass(600_000);
    for (script, arguments) in CALLS {
        let refusal = semaphore.refuses(script, arguments);
        let is_said = refusal.code == "READONLY" || refusal.detail.contains("READONLY");
        assert!(is_said, "{script} {arguments}: {refusal:?}");
    }
}
