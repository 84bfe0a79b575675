//! Compares the numbers of commands under "Cost" in the head comments with the server's counts.

use super::{Timed, script_names};
use test_support::head::Head;

/// The earlier use of a semaphore. It does not affect the numbers of commands.
#[derive(Debug, Clone, Copy, PartialEq)]
enum History {
    Plain,
    /// The limit was changed and changed back.
    Changed,
    /// Leases differ: another permit has a lease that is ten minutes longer.
    Mixed,
}

/// Prepares the case that a head comment names, and returns the arguments of the call. The
/// semaphore has been in use, so its limit exists, and the call moves no key's expiry.
fn set_the_stage(semaphore: &mut Timed, script: &str, case: &str, history: History) -> String {
    let limit = if history == History::Mixed { 3 } else { 2 };
    // The keys now outlive the other leases by minutes, so no further call moves their expiry.
    semaphore.acquire(limit, "long 1 601000 try");
    if history != History::Mixed {
        semaphore.ok("release", "return long");
    }
    if history == History::Changed {
        semaphore.ok("limit", "add 1");
        semaphore.ok("limit", "clear");
    }
    let arguments = arguments_of(script, case, &mut |requests| match requests {
        "crowd" => {
            for number in 0..20 {
                let request = format!("crowd{number} 1 1000 wait");
                semaphore.acquire_for(limit, &format!("other{number} poll 1000"), &request);
            }
        }
        _ => _ = semaphore.acquire_for(limit, "client publish 1000", requests),
    });
    arguments.replace("LIMIT", &limit.to_string())
}

/// Uses `hold` to make other requests hold or wait, and returns the arguments of the case. Besides
/// the permit of "long", a weight of 2 may be held.
fn arguments_of(script: &str, case: &str, hold: &mut dyn FnMut(&str)) -> &'static str {
    const NEW: &str = "declare_if_unset LIMIT client publish 1000 new 1 1000 wait";
    const TRY: &str = "declare_if_unset LIMIT client publish 1000 new 1 1000 try";
    const HEAVY: &str = "declare_if_unset LIMIT client publish 1000 new 2 1000 wait";
    match (script, case) {
        ("acquire", "granted") => {
            hold("other 1 1000 try");
            NEW
        }
        ("acquire", "granted with a weight above 1") => HEAVY,
        ("acquire", "not granted, empty queue") => {
            hold("other 1 1000 try another 1 1000 try");
            TRY
        }
        ("acquire", "not granted behind others") => {
            hold("other 1 1000 try another 1 1000 try first 1 1000 wait");
            TRY
        }
        ("acquire", "queued behind others") => {
            hold("other 1 1000 try another 1 1000 try first 1 1000 wait");
            NEW
        }
        ("acquire", "queued behind others, first request of the client") => {
            hold("other 1 1000 try another 1 1000 try first 1 1000 wait");
            "declare_if_unset LIMIT stranger publish 1000 new 1 1000 wait"
        }
        ("acquire", "queued, empty queue") => {
            hold("other 1 1000 try another 1 1000 try");
            NEW
        }
        ("acquire", "queued again with its ticket") => {
            hold("other 1 1000 try another 1 1000 try new 1 1000 wait");
            // A client sends its ticket. In this case any issued ticket works, because the queue
            // keeps the original ticket.
            "declare_if_unset LIMIT client publish 1000 new 1 1000 1"
        }
        ("acquire", "queued behind others, more than 16 clients wait") => {
            hold("other 1 1000 try another 1 1000 try first 1 1000 wait");
            hold("crowd");
            NEW
        }
        ("acquire", "queued again, more than 16 clients wait") => {
            hold("other 1 1000 try another 1 1000 try first 1 1000 wait");
            hold("crowd");
            hold("new 1 1000 wait");
            "declare_if_unset LIMIT client publish 1000 new 1 1000 1"
        }
        ("refresh", "held") => {
            hold("new 1 1000 try other 1 1000 try");
            "new 1000"
        }
        ("release", "held with weight 1, empty queue") => {
            hold("new 1 1000 try other 1 1000 try");
            "return new"
        }
        ("release", "held, and granted to the first waiter") => {
            hold("new 1 1000 try other 1 1000 try");
            hold("first 1 1000 wait second 1 1000 wait");
            "return new"
        }
        ("release", "unknown") => "return new",
        ("wake", "nothing to do") => "",
        ("limit", "the same limit declared again") => "declare LIMIT",
        ("inspect", "no holders, no waiters") => "0 10 0 10",
        ("inspect", "holders and waiters") => {
            hold("new 1 1000 try other 1 1000 try first 1 1000 wait");
            "0 10 0 10"
        }
        _ => panic!("{script}: the test does not know the case \"{case}\""),
    }
}

#[test]
fn every_case_runs_the_number_of_commands_in_the_head_comment() {
    for script in script_names() {
        let head = Head::read(script);
        let cases = head.counted_cases();
        assert_eq!(cases.is_empty(), script == "probe", "{script}: only `probe` has no cases");
        let mut wrong = Vec::new();
        for (count, case) in cases {
            for history in [History::Plain, History::Changed, History::Mixed] {
                let mut semaphore = Timed::start();
                let _listener = semaphore.listen("client");
                let arguments = set_the_stage(&mut semaphore, script, case, history);
                let call = |semaphore: &mut Timed| semaphore.call(script, &arguments).map(drop);
                let (reply, commands) = semaphore.commands_of(call);
                reply.unwrap_or_else(|error| panic!("{script} {arguments}: {error}"));
                if commands.in_scripts() != count {
                    wrong.push((case, history, commands.in_scripts(), commands));
                }
            }
        }
        assert!(wrong.is_empty(), "{script}: {wrong:#?}");
    }
}
