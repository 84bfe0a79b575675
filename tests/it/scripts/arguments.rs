//! Tests of every argument of every script, with valid and with invalid values. If an argument is
//! invalid, the error names the argument, and the call changes nothing.

use redis_semaphore::ScriptRegistry;

use super::values::Kind::{Choice, Client, Id, Integer, Next, Place};
use super::values::*;
use super::{Scripts, fresh, in_use};

/// A form of a call, with its arguments. The last `repeated` arguments form one request.
pub(super) struct Call {
    pub(super) script: &'static str,
    pub(super) arguments: Vec<Argument>,
    pub(super) repeated: usize,
}

const NEW: &str = "N:client:1:60000:new_____________";
const MARK: &str = "N:client:0:60000:mark____________";

pub(super) fn calls() -> Vec<Call> {
    let call = |script, arguments, repeated| Call { script, arguments, repeated };
    let limit = |rest: Vec<Argument>| {
        let kind = Argument("limit_mode", "existing", Choice);
        let number = Argument("limit", "9", Integer(0, MAX_COUNT));
        call("limit", [kind, number].into_iter().chain(rest).collect(), 0)
    };
    let change = |change| Argument("change", change, Choice);
    let number = || Argument("n", "9", Integer(0, MAX_COUNT));
    let mark = || Argument("idempotency_key", MARK, Id(0, 0));
    let acquire = vec![
        // With a runtime limit, no request is too heavy.
        Argument("limit_mode", "initial", Choice),
        Argument("limit", "4294967295", Integer(0, MAX_COUNT)),
        Argument("heartbeat_timeout", "10000", Integer(1, MAX_LEASE)),
        Argument("id", NEW, Id(1, MAX_COUNT)),
        Argument("wait_mode", "wait", Place),
    ];
    let any_id = || Argument("id", HEAVY, Id(1, MAX_COUNT));
    let refresh = vec![any_id(), Argument("next", "1", Next)];
    let inspect = vec![
        Argument("holders_offset", "0", Integer(0, MAX_NUMBER)),
        Argument("holders_count", "10", Integer(0, 1000)),
        Argument("waiters_offset", "0", Integer(0, MAX_NUMBER)),
        Argument("waiters_count", "10", Integer(0, 1000)),
        Argument("groups_offset", "0", Integer(0, MAX_NUMBER)),
        Argument("groups_count", "10", Integer(0, 100)),
    ];
    vec![
        call("acquire", acquire, 2),
        call("release", vec![Argument("release_mode", "return", Choice), any_id()], 1),
        call("refresh", refresh, 2),
        call("wake", vec![], 0),
        call(
            "probe",
            vec![Argument("notify_mode", "N", Choice), Argument("client", "client", Client)],
            0,
        ),
        limit(vec![]),
        limit(vec![change("set"), number(), mark()]),
        limit(vec![change("add"), number(), mark()]),
        limit(vec![change("clear"), mark()]),
        call("inspect", inspect, 0),
    ]
}

impl Call {
    fn values(&self) -> Vec<Vec<u8>> {
        self.arguments.iter().map(|argument| argument.1.into()).collect()
    }

    pub(super) fn with(&self, index: usize, value: &[u8]) -> Vec<Vec<u8>> {
        let mut values = self.values();
        values[index] = value.to_vec();
        values
    }

    pub(super) fn run(&self, semaphore: &mut Scripts, values: &[Vec<u8>]) {
        let keys = semaphore.keys.clone();
        let reply = semaphore.raw.call_with(self.script, &keys, values);
        reply.unwrap_or_else(|error| panic!("{} {values:?}: {error}", self.script));
    }

    fn refused(&self, semaphore: &mut Scripts, values: &[Vec<u8>]) -> String {
        let refusal = semaphore.refusal(self.script, &semaphore.keys.clone(), values);
        assert_eq!(refusal.code, "SEM_ARG", "{} {values:?}: {}", self.script, refusal.detail);
        refusal.detail
    }
}

#[test]
fn invalid_arguments_are_named_in_the_error_and_change_nothing() {
    let mut semaphore = in_use();
    for call in calls() {
        for (index, argument) in call.arguments.iter().enumerate() {
            let wanted = format!("ARGV[{}] ({}) must be ", index + 1, argument.0);
            for value in bad_values(argument) {
                let detail = call.refused(&mut semaphore, &call.with(index, &value));
                assert!(detail.starts_with(&wanted), "{}: {detail}", call.script);
                let printable = detail.bytes().all(|byte| (32..127).contains(&byte));
                assert!(printable && detail.len() < 250, "{}: {detail:?}", call.script);
            }
        }
    }
}

/// The scripts use the fact that the IDs of a call usually have the same beginning.
#[test]
fn a_forged_id_is_rejected_even_after_a_valid_id() {
    let mut semaphore = in_use();
    for call in calls().iter().filter(|call| call.repeated > 0) {
        let values = call.values();
        let first = values.len() - call.repeated;
        for index in first..values.len() {
            let argument = &call.arguments[index];
            if let Id(..) | Next = argument.2 {
                // Both IDs have the same beginning, except for the invalid part.
                let mut right = values.clone();
                right[first] = id_with(4, MAX_COUNT, b"the-one-in-front");
                let wanted = format!("ARGV[{}] ({}) ", index + 1 + call.repeated, argument.0);
                let bad = match argument.2 {
                    Id(least, most) => forged_ids(least, most),
                    _ => forged_ids(3, 3),
                };
                for value in bad {
                    let second = &call.with(index, &value)[first..];
                    let detail = call.refused(&mut semaphore, &[&right, second].concat());
                    assert!(detail.starts_with(&wanted), "{}: {detail}", call.script);
                }
            }
        }
    }
}

#[test]
fn every_argument_accepts_its_documented_minimum_and_maximum() {
    for call in calls() {
        for (index, argument) in call.arguments.iter().enumerate() {
            for value in good_values(argument) {
                // Each call uses its own semaphore, because the sum of the additions would exceed
                // the largest limit.
                call.run(&mut fresh(), &call.with(index, &value));
            }
        }
    }
}

#[test]
fn all_ids_of_an_acquire_must_have_the_same_client_and_notify_mode() {
    let mut semaphore = in_use();
    let id =
        |start: &str, nonce: char| format!("{start}:1:60000:{}", String::from(nonce).repeat(16));
    let first = id("N:client", 'a');
    for other in ["P:client", "S:client", "N:clients", "N:Client", "N:clien", "N:other"] {
        let strange = id(other, 'b');
        for ids in [[&first, &strange, &first], [&first, &id("N:client", 'c'), &strange]] {
            let index = if ids[1] == &strange { 6 } else { 8 };
            let mut arguments = vec!["declare_if_unset", "5", "10000"];
            arguments.extend(ids.iter().take(index / 2 - 1).flat_map(|id| [id.as_str(), "wait"]));
            let refusal = semaphore.refusal("acquire", &semaphore.keys.clone(), &arguments);
            let wanted =
                format!("ARGV[{index}] (id) must be of the same NOTIFY and CLIENT as the first");
            assert_eq!(refusal.code, "SEM_ARG");
            assert!(refusal.detail.starts_with(&wanted), "{}", refusal.detail);
        }
    }
    // The weights and leases of the IDs in one call may differ.
    let arguments = "declare_if_unset 5 10000 N:client:1:9:aaaaaaaaaaaaaaaa wait \
                     N:client:2:8:aaaaaaaaaaaaaaaa wait";
    semaphore.raw.ok("acquire", arguments);
}

#[test]
fn a_permit_can_be_adopted_only_by_an_id_of_the_same_weight() {
    let mut semaphore = in_use();
    let keys = semaphore.keys.clone();
    let next = |weight: u64| format!("P:another:{weight}:9000:taken-over-permit");
    for weight in [0, 1, 2, 4, MAX_COUNT] {
        let refusal = semaphore.refusal("refresh", &keys, &[HEAVY.to_owned(), next(weight)]);
        assert_eq!(refusal.code, "SEM_ARG");
        assert!(refusal.detail.starts_with("ARGV[2] (next) must be "), "{}", refusal.detail);
    }
    semaphore.call_with("refresh", &keys, &[HEAVY.to_owned(), next(3)]).unwrap();
    assert_eq!(semaphore.inspect().holder_ids(), ["light", "taken-over-permit"].into());
    semaphore.assert_weights_agree();
}

#[test]
fn an_invalid_request_is_reported_at_any_position_in_a_call() {
    let mut semaphore = in_use();
    let cases = [
        ("acquire", "declare_if_unset 5 c poll 9 a 1 9 try b 0 9 try c 1 9 try", "ARGV[6] (id)"),
        ("acquire", "declare_if_unset 5 c poll 9 a 1 9 try b 1 0 try c 1 9 try", "ARGV[6] (id)"),
        (
            "acquire",
            "declare_if_unset 5 c poll 9 a 1 9 try b 1 9 try c 1 9 no",
            "ARGV[9] (wait_mode)",
        ),
        ("acquire", "declare_if_unset 5 c poll 9 a 1 9 try b 1 9 try +c 1 9 try", "ARGV[8] (id)"),
        ("release", "return heavy light +x", "ARGV[4] (id)"),
        ("refresh", "heavy 9 light 9 x 0", "ARGV[6] (next)"),
        ("refresh", "heavy 9 +x 9 light 9", "ARGV[3] (id)"),
    ];
    for (script, arguments, named) in cases {
        let refusal = semaphore.refuses(script, arguments);
        assert_eq!(refusal.code, "SEM_ARG");
        assert!(refusal.detail.starts_with(named), "{script}: {}", refusal.detail);
    }
}

#[test]
fn an_id_is_rejected_if_it_occurs_twice_in_a_call() {
    let mut semaphore = in_use();
    let light = semaphore.id("light");
    let taken_over = format!("{HEAVY} 9 {light} {light}");
    let cases = [
        ("acquire", "declare_if_unset 5 c poll 9 new 1 9 try new 1 9 try", 6),
        (
            "acquire",
            "declare_if_unset 5 c poll 9 a 1 9 try new 1 9 try first 2 9 wait a 1 9 try",
            10,
        ),
        ("release", "return heavy light heavy", 4),
        ("refresh", "heavy 9 light 9 heavy 9", 5),
    ];
    let refused = |refusal: super::Refusal, named: &str| {
        assert_eq!(refusal.code, "SEM_ARG");
        let wanted = format!("{named} must be given once in a call, got");
        assert!(refusal.detail.starts_with(&wanted), "{}", refusal.detail);
    };
    for (script, arguments, index) in cases {
        refused(semaphore.refuses(script, arguments), &format!("ARGV[{index}] (id)"));
    }
    let keys = semaphore.keys.clone();
    let refusal = semaphore.refusal("refresh", &keys, &super::words(&taken_over));
    refused(refusal, "ARGV[4] (next)");
}

#[test]
fn missing_and_extra_arguments_are_rejected() {
    let mut semaphore = in_use();
    for call in calls() {
        let values = call.values();
        let (fixed, request) = values.split_at(values.len() - call.repeated);
        // These calls have too few arguments for one request, too many arguments for one request,
        // or too few arguments for two requests.
        let mut bad = vec![values.clone(), values.clone(), [fixed, request, request].concat()];
        bad[0].pop();
        bad[1].push("more".into());
        bad[2].pop();
        if call.repeated == 1 {
            // Each further argument is a whole request, so only a call without a request is
            // invalid.
            bad = vec![fixed.to_vec()];
        }
        if values.is_empty() {
            bad = vec![vec!["more".into()]];
        }
        for values in bad.iter().chain((!values.is_empty()).then_some(&vec![])) {
            call.refused(&mut semaphore, values);
        }
    }
}

#[test]
fn a_call_takes_1_to_1000_requests() {
    for call in calls().iter().filter(|call| call.repeated > 0) {
        let values = call.values();
        let (fixed, request) = values.split_at(values.len() - call.repeated);
        let requests = |count: usize| {
            let with_id = |number| {
                let id = |value: &Vec<u8>| match value.as_slice() {
                    value if value.contains(&b':') => {
                        id_with(4, 1, format!("{number:016}").as_bytes())
                    }
                    _ => value.clone(),
                };
                request.iter().map(id).collect::<Vec<_>>()
            };
            [fixed.to_vec(), (0..count).flat_map(with_id).collect()].concat()
        };
        let mut semaphore = in_use();
        for count in [0, 1001, 1500] {
            let detail = call.refused(&mut semaphore, &requests(count));
            assert!(detail.starts_with("1 to 1000 requests of "), "{}: {detail}", call.script);
        }
        call.run(&mut semaphore, &requests(1));
        call.run(&mut fresh(), &requests(1000));
    }
}

#[test]
fn the_list_of_tested_calls_has_every_script() {
    let calls = calls();
    for script in ScriptRegistry::embedded().scripts() {
        assert!(calls.iter().any(|call| call.script == script.name()), "{}", script.name());
    }
}
