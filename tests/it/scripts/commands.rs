//! The numbers of commands that the head comments tell under "Cost", counted by the server.

use super::{Timed, script_names};
use crate::support::head::Head;

/// The call of which a head says "for one request: <case>", after what makes it that case. The
/// semaphore has been in use for a while: the limit is known, and no expiry need be moved.
fn set_the_stage(semaphore: &mut Timed, script: &str, case: &str) -> &'static str {
    const NEW: &str = "declared 2 client publish 1000 new 1 1000 wait";
    const HEAVY: &str = "declared 2 client publish 1000 new 2 1000 wait";
    // Keys live on for a minute, so no call within that time must move their expiry.
    semaphore.acquire(2, "long 1 600000 try");
    semaphore.ok("release", "return long");
    let hold = |semaphore: &mut Timed, requests: &str| {
        semaphore.acquire_for(2, "client publish 1000", requests);
    };
    match (script, case) {
        ("acquire", "granted") => {
            hold(semaphore, "other 1 1000 try");
            NEW
        }
        ("acquire", "granted with a weight above 1") => HEAVY,
        ("acquire", "refused") => {
            hold(semaphore, "other 1 1000 try another 1 1000 try");
            "declared 2 client publish 1000 new 1 1000 try"
        }
        ("acquire", "queued behind others") => {
            hold(semaphore, "other 1 1000 try another 1 1000 try first 1 1000 wait");
            NEW
        }
        ("acquire", "queued, asked for again with its ticket") => {
            hold(semaphore, "other 1 1000 try another 1 1000 try new 1 1000 wait");
            // As clients do, with a ticket: any that was given is the one that it has.
            "declared 2 client publish 1000 new 1 1000 1"
        }
        ("refresh", "held") => {
            hold(semaphore, "new 1 1000 try other 1 1000 try");
            "new 1000"
        }
        ("release", "held, and nobody waits") => {
            hold(semaphore, "new 1 1000 try other 1 1000 try");
            "return new"
        }
        ("release", "held, and handed to the first who waits") => {
            hold(semaphore, "new 1 1000 try other 1 1000 try");
            hold(semaphore, "first 1 1000 wait second 1 1000 wait");
            "return new"
        }
        ("release", "unknown") => "return new",
        ("wake", "nothing to do") => "",
        ("limit", "the same limit declared again") => "declare 2",
        ("inspect", "nobody holds or waits") => "0 10 0 10",
        ("inspect", "holders and waiters told") => {
            hold(semaphore, "new 1 1000 try other 1 1000 try first 1 1000 wait");
            "0 10 0 10"
        }
        _ => panic!("{script}: the test does not know the case \"{case}\""),
    }
}

#[test]
fn every_case_runs_as_many_commands_as_its_head_says() {
    for script in script_names() {
        let head = Head::read(script);
        let cases = head.counted_cases();
        assert_eq!(cases.is_empty(), script == "probe", "{script} tells no numbers");
        let mut wrong = Vec::new();
        for (count, case) in cases {
            let mut semaphore = Timed::start();
            let _listener = semaphore.listen("client");
            let arguments = set_the_stage(&mut semaphore, script, case);
            let call = |semaphore: &mut Timed| semaphore.call(script, arguments).map(drop);
            let (reply, commands) = semaphore.commands_of(call);
            reply.unwrap_or_else(|error| panic!("{script} {arguments}: {error}"));
            if commands.in_scripts() != count {
                wrong.push((case, commands.in_scripts(), commands));
            }
        }
        assert!(wrong.is_empty(), "{script}: {wrong:#?}");
    }
}
