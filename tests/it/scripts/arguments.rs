//! Every argument of every script, good and bad. A bad one is named, and changes nothing.

use redis_semaphore::ScriptRegistry;

use super::{Scripts, fresh, in_use};

enum Kind {
    Integer(u64, u64),
    /// One of a few words.
    Choice,
    /// Of 1 to 256 bytes.
    Word,
    /// A word without "+" in front.
    Id,
    /// A ticket or one of two words.
    Place,
}

use Kind::{Choice, Id, Integer, Place, Word};

struct Argument(&'static str, &'static str, Kind);

/// A way to call a script: its arguments, of which the last `repeated` are a request.
struct Call {
    script: &'static str,
    arguments: Vec<Argument>,
    repeated: usize,
}

const MAX_COUNT: u64 = 4_294_967_295;
const MAX_LEASE: u64 = 604_800_000;
const MAX_SEQUENCE: u64 = 9_007_199_254_740_991;

fn calls() -> Vec<Call> {
    let limit = |action: &'static str, rest: Vec<Argument>| {
        let action = Argument("action", action, Choice);
        let arguments = std::iter::once(action).chain(rest).collect();
        Call { script: "limit", arguments, repeated: 0 }
    };
    let number = || Argument("n", "9", Integer(0, MAX_COUNT));
    let acquire = |limit: &'static str| Call {
        script: "acquire",
        arguments: vec![
            // No request is too heavy for a limit that was set at run time.
            Argument("kind", "initial", Choice),
            Argument("limit", limit, Integer(0, MAX_COUNT)),
            Argument("client", "client", Word),
            Argument("wake", "poll", Choice),
            Argument("liveness", "10000", Integer(1, MAX_LEASE)),
            Argument("id", "new", Id),
            Argument("weight", "1", Integer(1, MAX_COUNT)),
            Argument("lease", "60000", Integer(1, MAX_LEASE)),
            Argument("place", "wait", Place),
        ],
        repeated: 4,
    };
    vec![
        acquire("4294967295"),
        // With a limit of fewer digits the script reads the other arguments another way.
        acquire("9"),
        Call {
            script: "release",
            arguments: vec![Argument("how", "return", Choice), Argument("id", "heavy", Id)],
            repeated: 1,
        },
        Call {
            script: "refresh",
            arguments: vec![
                Argument("id", "heavy", Id),
                Argument("lease", "60000", Integer(1, MAX_LEASE)),
            ],
            repeated: 2,
        },
        Call { script: "wake", arguments: vec![], repeated: 0 },
        Call {
            script: "probe",
            arguments: vec![Argument("client", "client", Word), Argument("wake", "poll", Choice)],
            repeated: 0,
        },
        limit("declare", vec![number()]),
        limit("initial", vec![number()]),
        limit("set", vec![number()]),
        limit("add", vec![number(), Argument("id", "mark", Id)]),
        limit("clear", vec![]),
        Call {
            script: "inspect",
            arguments: vec![
                Argument("skip_held", "0", Integer(0, MAX_SEQUENCE)),
                Argument("holders", "10", Integer(0, 1000)),
                Argument("skip_wait", "0", Integer(0, MAX_SEQUENCE)),
                Argument("waiters", "10", Integer(0, 1000)),
            ],
            repeated: 0,
        },
    ]
}

impl Call {
    fn values(&self) -> Vec<Vec<u8>> {
        self.arguments.iter().map(|argument| argument.1.into()).collect()
    }

    fn with(&self, index: usize, value: &[u8]) -> Vec<Vec<u8>> {
        let mut values = self.values();
        values[index] = value.to_vec();
        values
    }

    fn run(&self, semaphore: &mut Scripts, values: &[Vec<u8>]) {
        let keys = semaphore.keys.clone();
        let reply = semaphore.raw.call_with(self.script, &keys, values);
        reply.unwrap_or_else(|error| panic!("{} {values:?}: {error}", self.script));
    }

    /// What the script says of arguments that it must refuse as such.
    fn refused(&self, semaphore: &mut Scripts, values: &[Vec<u8>]) -> String {
        let refusal = semaphore.refusal(self.script, &semaphore.keys.clone(), values);
        assert_eq!(refusal.code, "SEM_ARG", "{} {values:?}: {}", self.script, refusal.detail);
        refusal.detail
    }
}

/// Things that no number, no id and no word of the protocol may be, nor may end or begin with.
fn blanks_and_controls() -> Vec<Vec<u8>> {
    let mut bad = vec![b"".to_vec()];
    for byte in (0..=32).chain([127]) {
        bad.extend([vec![byte], vec![byte, b'1'], vec![b'1', byte], vec![b'1', byte, b'1']]);
    }
    bad
}

fn no_integers() -> Vec<Vec<u8>> {
    let bad = [
        "x",
        "one",
        "-1",
        "-0",
        "+1",
        "1.0",
        "1.5",
        "1.",
        ".5",
        "1,5",
        "1e3",
        "1E3",
        "0x10",
        "0b1",
        "1_000",
        "1a",
        "nan",
        "inf",
        "-inf",
        "１",
        "1 1",
        // Longer than any number that counts here, whatever its value.
        "00000000000000001",
        "99999999999999999999",
        "18446744073709551617",
    ];
    let bad = bad.iter().map(|text| text.as_bytes().to_vec());
    bad.chain([vec![0xff], vec![b'1', 0xff], vec![b'9'; 5000]]).collect()
}

fn bad_values(argument: &Argument) -> Vec<Vec<u8>> {
    let mut bad = blanks_and_controls();
    let long = vec![b'i'; 257];
    let text = |number: u64| number.to_string().into_bytes();
    match argument.2 {
        Integer(min, max) => {
            bad.extend(no_integers());
            bad.extend([text(max + 1), b"9999999999999999".to_vec()]);
            bad.extend(min.checked_sub(1).map(text));
        }
        Place => {
            bad.extend(no_integers());
            bad.extend(["0", "Try", "WAIT", "trying", "queue"].map(|t| t.as_bytes().to_vec()));
            bad.push(text(MAX_SEQUENCE + 1));
        }
        Choice => {
            let good = argument.1;
            bad.extend([good.to_uppercase().into(), good[1..].into(), format!("{good}\0").into()]);
            bad.extend([format!("{good}\n").into(), format!(" {good}").into(), vec![0xff], long]);
        }
        Word => bad.push(long),
        Id => bad.extend([long, b"+".to_vec(), b"+id".to_vec()]),
    }
    bad
}

fn good_values(argument: &Argument) -> Vec<Vec<u8>> {
    let text = |number: u64| number.to_string().into_bytes();
    let words = ["a", "1", "-", "{x}", "a:b", "%s%d", "0x10", "ü", "a+b", "'\"\\"];
    let mut words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
    words.extend([vec![b'i'; 256], vec![0xff, 0xfe], vec![0x80; 256]]);
    match argument.2 {
        Integer(min, max) => {
            vec![text(min), text(max), b"0000000000000001".to_vec(), b"007".to_vec()]
        }
        Place => vec![b"try".to_vec(), b"wait".to_vec(), text(1), text(MAX_SEQUENCE)],
        Choice => vec![argument.1.into()],
        Id => words,
        Word => [words, vec![b"+".to_vec()]].concat(),
    }
}

#[test]
fn bad_arguments_are_named_and_change_nothing() {
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

#[test]
fn every_argument_may_be_as_small_and_as_large_as_promised() {
    for call in calls() {
        for (index, argument) in call.arguments.iter().enumerate() {
            for value in good_values(argument) {
                // Each on a semaphore of its own: what is added up would exceed the largest limit.
                call.run(&mut fresh(), &call.with(index, &value));
            }
        }
    }
}

#[test]
fn a_bad_request_is_found_wherever_it_stands() {
    let mut semaphore = in_use();
    let cases = [
        ("acquire", "declared 5 c poll 9 a 1 9 try b 0 9 try c 1 9 try", "ARGV[11] (weight)"),
        ("acquire", "declared 5 c poll 9 a 1 9 try b 1 9 try c 1 9 no", "ARGV[17] (place)"),
        ("acquire", "declared 5 c poll 9 a 1 9 try b 1 9 try +c 1 9 try", "ARGV[14] (id)"),
        ("release", "return heavy light +x", "ARGV[4] (id)"),
        ("refresh", "heavy 9 light 9 x 0", "ARGV[6] (lease)"),
    ];
    for (script, arguments, named) in cases {
        let refusal = semaphore.refuses(script, arguments);
        assert_eq!(refusal.code, "SEM_ARG");
        assert!(refusal.detail.starts_with(named), "{script}: {}", refusal.detail);
    }
}

#[test]
fn an_id_may_stand_only_once_in_a_call() {
    let mut semaphore = in_use();
    let cases = [
        ("acquire", "declared 5 c poll 9 new 1 9 try new 1 9 try", 10),
        ("acquire", "declared 5 c poll 9 a 1 9 try new 1 9 try first 2 9 wait a 1 9 try", 18),
        ("release", "return heavy light heavy", 4),
        ("refresh", "heavy 9 light 9 heavy 9", 5),
    ];
    for (script, arguments, index) in cases {
        let refusal = semaphore.refuses(script, arguments);
        let wanted = format!("ARGV[{index}] (id) must be given once in a call, got");
        assert_eq!(refusal.code, "SEM_ARG");
        assert!(refusal.detail.starts_with(&wanted), "{script}: {}", refusal.detail);
    }
}

#[test]
fn arguments_may_be_neither_missing_nor_too_many() {
    let mut semaphore = in_use();
    for call in calls() {
        let values = call.values();
        let (fixed, request) = values.split_at(values.len() - call.repeated);
        // One request less an argument, and two less an argument or more.
        let mut bad = vec![values.clone(), values.clone(), [fixed, request, request].concat()];
        bad[0].pop();
        bad[1].push("more".into());
        bad[2].pop();
        if call.repeated == 1 {
            // Every count from one on is right.
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
                    b"new" | b"heavy" => format!("id{number}").into_bytes(),
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
fn the_table_above_has_every_script() {
    let calls = calls();
    for script in ScriptRegistry::embedded().scripts() {
        assert!(calls.iter().any(|call| call.script == script.name()), "{}", script.name());
    }
}
