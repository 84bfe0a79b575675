//! The numbers of commands that the head comments tell under "Cost", counted by the server.

use super::{Timed, script_names};
use test_support::head::Head;

/// What else a semaphore has been through: the numbers do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum History {
    Plain,
    /// The limit was changed, and the change taken back.
    Changed,
    /// Leases are not alike: a permit more, whose lease is ten minutes longer, is held on.
    Mixed,
}

/// The call of which a head says "for one request: <case>", after what makes it that case. The
/// semaphore has been in use for a while: the limit is known, and no expiry need be moved.
fn set_the_stage(semaphore: &mut Timed, script: &str, case: &str, history: History) -> String {
    let limit = if history == History::Mixed { 3 } else { 2 };
    // Keys live on for a minute, so no call within that time must move their expiry.
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

/// Has others `hold` or wait before. All but a permit of "long" may be held: a weight of 2.
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
        ("acquire", "refused, and nobody waits") => {
            hold("other 1 1000 try another 1 1000 try");
            TRY
        }
        ("acquire", "refused behind others") => {
            hold("other 1 1000 try another 1 1000 try first 1 1000 wait");
            TRY
        }
        ("acquire", "queued behind others") => {
            hold("other 1 1000 try another 1 1000 try first 1 1000 wait");
            NEW
        }
        ("acquire", "queued, asked for again with its ticket") => {
            hold("other 1 1000 try another 1 1000 try new 1 1000 wait");
            // As clients do, with a ticket: any that was given is the one that it has.
            "declare_if_unset LIMIT client publish 1000 new 1 1000 1"
        }
        ("acquire", "queued behind others, where more than 16 clients wait") => {
            hold("other 1 1000 try another 1 1000 try first 1 1000 wait");
            hold("crowd");
            NEW
        }
        ("acquire", "queued, asked for again where more than 16 clients wait") => {
            hold("other 1 1000 try another 1 1000 try first 1 1000 wait");
            hold("crowd");
            hold("new 1 1000 wait");
            "declare_if_unset LIMIT client publish 1000 new 1 1000 1"
        }
        ("refresh", "held") => {
            hold("new 1 1000 try other 1 1000 try");
            "new 1000"
        }
        ("release", "held, and nobody waits") => {
            hold("new 1 1000 try other 1 1000 try");
            "return new"
        }
        ("release", "held, and handed to the first who waits") => {
            hold("new 1 1000 try other 1 1000 try");
            hold("first 1 1000 wait second 1 1000 wait");
            "return new"
        }
        ("release", "unknown") => "return new",
        ("wake", "nothing to do") => "",
        ("limit", "the same limit declared again") => "declare LIMIT",
        ("inspect", "nobody holds or waits") => "0 10 0 10",
        ("inspect", "holders and waiters told") => {
            hold("new 1 1000 try other 1 1000 try first 1 1000 wait");
            "0 10 0 10"
        }
        _ => panic!("{script}: the test does not know the case \"{case}\""),
    }
}

#[test]
fn every_case_runs_as_many_commands_as_its_head_says_whatever_was_before() {
    for script in script_names() {
        let head = Head::read(script);
        let cases = head.counted_cases();
        assert_eq!(cases.is_empty(), script == "probe", "{script} tells no numbers");
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
