//! Every argument of every script, good and bad. A bad one is named, and changes nothing.

use redis_semaphore::ScriptRegistry;

use super::{Scripts, fresh, in_use};

enum Kind {
    Integer(u64, u64),
    /// One of a few words.
    Choice,
    /// The name of a client.
    Client,
    /// What a request, or a mark, is named by: with a weight in these bounds.
    Word(u64, u64),
    /// A ticket, a head start, or one of two words.
    Place,
    /// A lease, or a word of the same weight as HEAVY.
    Next,
}

use Kind::{Choice, Client, Integer, Next, Place, Word};

struct Argument(&'static str, &'static str, Kind);

/// A way to call a script: its arguments, of which the last `repeated` are a request.
struct Call {
    script: &'static str,
    arguments: Vec<Argument>,
    repeated: usize,
}

const MAX_COUNT: u64 = 4_294_967_295;
const MAX_LEASE: u64 = 604_800_000;
const MAX_NUMBER: u64 = 9_007_199_254_740_991;

/// A permit of `in_use`.
const HEAVY: &str = "N:client:3:600000:heavy___________";
const NEW: &str = "N:client:1:60000:new_____________";
const MARK: &str = "N:client:0:60000:mark____________";

fn calls() -> Vec<Call> {
    let call = |script, arguments, repeated| Call { script, arguments, repeated };
    let limit = |action: &'static str, rest: Vec<Argument>| {
        let action = Argument("action", action, Choice);
        call("limit", std::iter::once(action).chain(rest).collect(), 0)
    };
    let number = || Argument("n", "9", Integer(0, MAX_COUNT));
    let mark = || Argument("mark", MARK, Word(0, 0));
    let acquire = vec![
        // No request is too heavy for a limit that was set at run time.
        Argument("kind", "initial", Choice),
        Argument("limit", "4294967295", Integer(0, MAX_COUNT)),
        Argument("liveness", "10000", Integer(1, MAX_LEASE)),
        Argument("word", NEW, Word(1, MAX_COUNT)),
        Argument("place", "wait", Place),
    ];
    let any_word = || Argument("word", HEAVY, Word(0, MAX_COUNT));
    let refresh = vec![any_word(), Argument("next", "1", Next)];
    let inspect = vec![
        Argument("skip_held", "0", Integer(0, MAX_NUMBER)),
        Argument("holders", "10", Integer(0, 1000)),
        Argument("skip_wait", "0", Integer(0, MAX_NUMBER)),
        Argument("waiters", "10", Integer(0, 1000)),
    ];
    vec![
        call("acquire", acquire, 2),
        call("release", vec![Argument("how", "return", Choice), any_word()], 1),
        call("refresh", refresh, 2),
        call("wake", vec![], 0),
        call("probe", vec![Argument("how", "N", Choice), Argument("client", "client", Client)], 0),
        limit("declare", vec![number()]),
        limit("initial", vec![number()]),
        limit("set", vec![number(), mark()]),
        limit("add", vec![number(), mark()]),
        limit("clear", vec![mark()]),
        call("inspect", inspect, 0),
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

/// Things that no argument may be.
fn blanks_and_controls() -> Vec<Vec<u8>> {
    let mut bad = vec![b"".to_vec()];
    for byte in (0..=32).chain([127]) {
        bad.extend([vec![byte], vec![byte, b'1'], vec![b'1', byte], vec![b'1', byte, b'1']]);
    }
    bad
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn text_of(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

fn no_integers() -> Vec<Vec<u8>> {
    let mut bad = texts(&[
        "x",
        "one",
        "-1",
        "-0",
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
        // There is one way to write a number.
        "00",
        "01",
        "007",
        "0000000000000001",
        // Longer than any number that counts here, whatever its value.
        "00000000000000001",
        "99999999999999999999",
        "18446744073709551617",
    ]);
    bad.extend([vec![0xff], vec![b'1', 0xff], vec![b'9'; 5000]]);
    bad
}

const MEGABYTE: usize = 1 << 20;
const NONCE: &str = "0123456789abcdef";

/// A word of these parts, whatever they are.
fn word_of(parts: [&[u8]; 5]) -> Vec<u8> {
    parts.join(&b':')
}

/// A word that is right but for one part.
fn word_with(index: usize, weight: u64, part: &[u8]) -> Vec<u8> {
    let weight = text_of(weight);
    let mut parts: [&[u8]; 5] = [b"N", b"client", &weight, b"60000", NONCE.as_bytes()];
    parts[index] = part;
    word_of(parts)
}

fn bad_clients() -> Vec<Vec<u8>> {
    let mut bad = blanks_and_controls();
    bad.extend(texts(&["a b", "a:b", ":", "a/b", "{x}", "*", "%s", "ü", "a,b", "a'b", "a\"b"]));
    bad.extend([vec![b'c'; 101], vec![b'c'; MEGABYTE], vec![0xff], vec![b'c', 0xc3]]);
    bad
}

/// What nobody may be named by, though much of it looks like a word.
fn forged_words(least: u64, most: u64) -> Vec<Vec<u8>> {
    let with = |index, part: &[u8]| word_with(index, most, part);
    let all = |index, parts: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
        parts.iter().map(|part| with(index, part)).collect()
    };
    let mut bad = texts(&["x", "new", ":", "::::", "*", "N", "N:client:1:60000", "0", "+1"]);
    bad.extend([vec![b':'; MEGABYTE], vec![0; MEGABYTE], vec![0xff; 40]]);
    bad.extend(all(
        0,
        texts(&["", "p", "n", "X", "NN", "PN", " N", "N ", "N\n", "\0N", "PUBLISH"]),
    ));
    bad.extend(all(1, bad_clients()));
    let numbers = [no_integers(), blanks_and_controls(), texts(&["+1", "1:1", "1:"])].concat();
    bad.extend(all(2, numbers.clone()));
    bad.extend(all(3, numbers));
    bad.extend(all(3, vec![b"0".to_vec(), text_of(MAX_LEASE + 1)]));
    bad.extend([with(2, &text_of(most + 1)), with(2, &[b'1'; MEGABYTE])]);
    bad.extend(least.checked_sub(1).map(|weight| with(2, &text_of(weight))));
    bad.extend(all(4, vec![vec![], vec![b'n'; 15], vec![b'n'; 65], vec![b'n'; MEGABYTE]]));
    for byte in b"\0\n\r\t .:/*+=%{}\x7f\x80\xc3\xff" {
        let mut nonce = NONCE.as_bytes().to_vec();
        bad.push(with(4, &[&nonce, &[*byte][..]].concat()));
        bad.push(with(4, &[&[*byte], &nonce[..]].concat()));
        nonce[8] = *byte;
        bad.push(with(4, &nonce));
    }
    let good = with(0, b"N");
    for (before, after) in [("", ":"), (":", ""), ("\n", ""), ("", "\n"), (" ", ""), ("", " ")] {
        bad.push([before.as_bytes(), &good, after.as_bytes()].concat());
    }
    bad
}

fn good_words(least: u64, most: u64) -> Vec<Vec<u8>> {
    let with = |index, part: &[u8]| word_with(index, least, part);
    let mut good = vec![with(2, &text_of(least)), with(2, &text_of(most))];
    good.extend([with(3, b"1"), with(3, &text_of(MAX_LEASE))]);
    good.extend(["P", "S", "N"].map(|how| with(0, how.as_bytes())));
    good.extend(["c", "-", ".", "_", "web-7.4711.k3f9zQ", "0"].map(|c| with(1, c.as_bytes())));
    good.push(with(1, &[b'c'; 100]));
    good.extend([with(4, &[b'n'; 16]), with(4, &[b'n'; 64]), with(4, b"-_-_-_-_AZaz0990")]);
    let longest = [&b"P"[..], &[b'c'; 100], &text_of(most), &text_of(MAX_LEASE), &[b'n'; 64]];
    good.push(word_of(longest));
    good
}

fn bad_values(argument: &Argument) -> Vec<Vec<u8>> {
    let mut bad = blanks_and_controls();
    match argument.2 {
        Integer(min, max) => {
            bad.extend(no_integers());
            bad.extend([b"+1".to_vec(), text_of(max + 1), b"9999999999999999".to_vec()]);
            bad.extend(min.checked_sub(1).map(text_of));
        }
        Place => {
            bad.extend(no_integers());
            bad.extend(texts(&["0", "Try", "WAIT", "trying", "queue", "+", "+01", "+-1", "++1"]));
            bad.extend(texts(&["+1.5", "+1e3", "+3600001", "+9999999999999999", "+ 1", "1+"]));
            bad.extend([text_of(MAX_NUMBER + 1), vec![b't'; MEGABYTE]]);
        }
        Choice => {
            let good = argument.1;
            bad.extend(
                [format!("{good}\0"), format!("{good}\n"), format!(" {good}")].map(Into::into),
            );
            bad.extend([good[1..].into(), vec![0xff], vec![b'i'; MEGABYTE]]);
            let other_case = if good == "N" { "n".to_owned() } else { good.to_uppercase() };
            bad.push(other_case.into());
        }
        Client => bad.extend(bad_clients()),
        Word(least, most) => bad.extend(forged_words(least, most)),
        Next => {
            bad.extend(no_integers());
            bad.extend(["0", "600001", "+1"].map(Into::into));
            bad.extend(forged_words(3, 3));
        }
    }
    bad
}

fn good_values(argument: &Argument) -> Vec<Vec<u8>> {
    match argument.2 {
        Integer(min, max) => vec![text_of(min), text_of(max)],
        Place => {
            let most = text_of(MAX_NUMBER);
            [texts(&["try", "wait", "1", "+0", "+1", "+3600000"]), vec![most]].concat()
        }
        Choice => vec![argument.1.into()],
        Client => [texts(&["c", "-", ".", "web-7.4711.k3f9zQ"]), vec![vec![b'c'; 100]]].concat(),
        Word(least, most) => good_words(least, most),
        Next => [texts(&["1", "60000", "600000"]), good_words(3, 3)].concat(),
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

/// The words of a call mostly begin alike, and the scripts make use of it.
#[test]
fn a_forged_word_is_refused_also_behind_one_that_is_right() {
    let mut semaphore = in_use();
    for call in calls().iter().filter(|call| call.repeated > 0) {
        let values = call.values();
        let first = values.len() - call.repeated;
        for index in first..values.len() {
            let argument = &call.arguments[index];
            if let Word(..) | Next = argument.2 {
                // Then both begin alike, but for the part that is wrong.
                let mut right = values.clone();
                right[first] = word_with(4, MAX_COUNT, b"the-one-in-front");
                let wanted = format!("ARGV[{}] ({}) ", index + 1 + call.repeated, argument.0);
                let bad = match argument.2 {
                    Word(least, most) => forged_words(least, most),
                    _ => forged_words(3, 3),
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
fn all_words_of_an_acquire_are_of_one_client_that_hears_in_one_way() {
    let mut semaphore = in_use();
    let word =
        |start: &str, nonce: char| format!("{start}:1:60000:{}", String::from(nonce).repeat(16));
    let first = word("N:client", 'a');
    for other in ["P:client", "S:client", "N:clients", "N:Client", "N:clien", "N:other"] {
        let strange = word(other, 'b');
        for words in [[&first, &strange, &first], [&first, &word("N:client", 'c'), &strange]] {
            let index = if words[1] == &strange { 6 } else { 8 };
            let mut arguments = vec!["declared", "5", "10000"];
            arguments
                .extend(words.iter().take(index / 2 - 1).flat_map(|word| [word.as_str(), "wait"]));
            let refusal = semaphore.refusal("acquire", &semaphore.keys.clone(), &arguments);
            let wanted =
                format!("ARGV[{index}] (word) must be of the same HOW and CLIENT as the first");
            assert_eq!(refusal.code, "SEM_ARG");
            assert!(refusal.detail.starts_with(&wanted), "{}", refusal.detail);
        }
    }
    // Weights and leases may differ.
    let arguments =
        "declared 5 10000 N:client:1:9:aaaaaaaaaaaaaaaa wait N:client:2:8:aaaaaaaaaaaaaaaa wait";
    semaphore.raw.ok("acquire", arguments);
}

#[test]
fn a_permit_may_be_taken_over_only_by_a_word_of_its_weight() {
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
fn a_bad_request_is_found_wherever_it_stands() {
    let mut semaphore = in_use();
    let cases = [
        ("acquire", "declared 5 c poll 9 a 1 9 try b 0 9 try c 1 9 try", "ARGV[6] (word)"),
        ("acquire", "declared 5 c poll 9 a 1 9 try b 1 0 try c 1 9 try", "ARGV[6] (word)"),
        ("acquire", "declared 5 c poll 9 a 1 9 try b 1 9 try c 1 9 no", "ARGV[9] (place)"),
        ("acquire", "declared 5 c poll 9 a 1 9 try b 1 9 try +c 1 9 try", "ARGV[8] (word)"),
        ("release", "return heavy light +x", "ARGV[4] (word)"),
        ("refresh", "heavy 9 light 9 x 0", "ARGV[6] (next)"),
        ("refresh", "heavy 9 +x 9 light 9", "ARGV[3] (word)"),
    ];
    for (script, arguments, named) in cases {
        let refusal = semaphore.refuses(script, arguments);
        assert_eq!(refusal.code, "SEM_ARG");
        assert!(refusal.detail.starts_with(named), "{script}: {}", refusal.detail);
    }
}

#[test]
fn a_word_may_stand_only_once_in_a_call() {
    let mut semaphore = in_use();
    let light = semaphore.word("light");
    let taken_over = format!("{HEAVY} 9 {light} {light}");
    let cases = [
        ("acquire", "declared 5 c poll 9 new 1 9 try new 1 9 try", 6),
        ("acquire", "declared 5 c poll 9 a 1 9 try new 1 9 try first 2 9 wait a 1 9 try", 10),
        ("release", "return heavy light heavy", 4),
        ("refresh", "heavy 9 light 9 heavy 9", 5),
    ];
    let refused = |refusal: super::Refusal, named: &str| {
        assert_eq!(refusal.code, "SEM_ARG");
        let wanted = format!("{named} must be given once in a call, got");
        assert!(refusal.detail.starts_with(&wanted), "{}", refusal.detail);
    };
    for (script, arguments, index) in cases {
        refused(semaphore.refuses(script, arguments), &format!("ARGV[{index}] (word)"));
    }
    let keys = semaphore.keys.clone();
    let refusal = semaphore.refusal("refresh", &keys, &super::words(&taken_over));
    refused(refusal, "ARGV[4] (next)");
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
            let with_word = |number| {
                let word = |value: &Vec<u8>| match value.as_slice() {
                    value if value.contains(&b':') => {
                        word_with(4, 1, format!("{number:016}").as_bytes())
                    }
                    _ => value.clone(),
                };
                request.iter().map(word).collect::<Vec<_>>()
            };
            [fixed.to_vec(), (0..count).flat_map(with_word).collect()].concat()
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
