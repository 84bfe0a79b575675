//! Tests the pictures that are drawn of a state.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::Size;

use super::draw;
use crate::escape;
use crate::survey::Summary;
use crate::top::cursor::Cursor;
use crate::top::dialogue::{Dialogue, Kind, Victim};
use crate::top::look::{Group, Holder, Look, Waiter};
use crate::top::options::Top;
use crate::top::state::{Column, List, Moment, Open, Row, Sort, State};

fn state(width: u16, height: u16) -> State {
    let asked = Top { pattern: None, every: Duration::from_secs(1) };
    State::new("sem", &asked, Size::new(width, height))
}

fn add(state: &mut State, name: &str, held: u64, limit: u32, waits: &[u64]) {
    let summary = Summary {
        limit: Some(limit),
        held,
        queued: waits.len() as u64,
        longest_wait: waits.iter().max().map(|wait| Duration::from_secs(*wait)),
        ..Summary::default()
    };
    let row = Row { summary: Some(Ok(summary)), ..Row::default() };
    state.rows.insert(name.to_owned(), row);
}

fn open(state: &mut State, client_name: &str) {
    let id = format!("P:{client_name}:1:30000:9fJ2mQ0xV7sT1bLc");
    let holder = Holder {
        id: id.clone(),
        client_name: client_name.to_owned(),
        weight: u32::MAX,
        lease_left: Duration::from_secs(29),
    };
    let waiter = Waiter {
        id,
        client_name: client_name.to_owned(),
        weight: 1,
        position: 1,
        waited: Duration::from_secs(3661),
        is_there: false,
    };
    let look = Look { holders: vec![holder; 30], waiters: vec![waiter; 30], ..Look::default() };
    let mut open = Open::new("jobs");
    open.look = Some(Ok(look));
    state.open = Some(open);
}

fn picture(state: &State) -> String {
    picture_at(state, Moment::now())
}

fn picture_at(state: &State, now: Moment) -> String {
    let mut terminal =
        Terminal::new(TestBackend::new(state.size.width, state.size.height)).unwrap();
    terminal.draw(|frame| draw(state, now, frame)).unwrap();
    terminal.backend().to_string()
}

/// "0 semaphores" would claim that there are none.
#[test]
fn without_a_list_top_shows_the_reason_and_no_count() {
    let mut state = state(80, 24);
    let shown = picture(&state);
    assert!(shown.contains("redis-semaphore: semaphores under prefix sem"), "{shown}");
    assert!(!shown.contains("0 semaphores"), "{shown}");
    state.contact.trouble = Some("nothing listens there".to_owned());
    let shown = picture(&state);
    assert!(shown.contains("No list of names yet: nothing listens there"), "{shown}");
    assert!(!shown.contains("last update"), "{shown}");
}

#[test]
fn the_list_has_a_line_for_each_semaphore() {
    let mut state = state(80, 24);
    add(&mut state, "jobs", 3, 3, &[5, 65]);
    add(&mut state, "uploads", 0, 10, &[]);
    state.sort = Sort { column: Column::LongestWait, is_reversed: false };
    let picture = picture(&state);
    let lines: Vec<&str> = picture.lines().collect();
    assert!(lines[0].contains("2 semaphores under prefix sem, every 1s"), "{picture}");
    assert!(lines[1].contains("4 WAIT ▼"), "{picture}");
    assert!(lines[2].starts_with("\"jobs") && lines[2].contains("3/3"), "{picture}");
    assert!(lines[2].contains(" 2 ") && lines[2].contains("1m 5s"), "{picture}");
    assert!(lines[3].starts_with("\"uploads"), "{picture}");
}

#[test]
fn a_missing_reply_is_reported_only_while_a_call_is_in_progress() {
    let mut state = state(80, 24);
    let then = state.contact.last;
    let later = Moment { instant: then.instant + Duration::from_secs(4), ..then };
    let is_reported =
        |state: &State| picture_at(state, later).contains("no reply from Redis for 4s");
    // No call is in progress between two lists.
    assert!(!is_reported(&state));
    add(&mut state, "jobs", 0, 1, &[]);
    let asked = |state: &mut State, at| {
        let row = state.rows.get_mut("jobs").unwrap();
        (row.is_asked, row.looked_at) = (true, Some(at));
    };
    asked(&mut state, later.instant);
    assert!(!is_reported(&state));
    asked(&mut state, then.instant);
    assert!(is_reported(&state));
}

#[test]
fn the_page_with_the_marked_line_is_shown() {
    let mut state = state(80, 24);
    (0..50).for_each(|number| add(&mut state, &format!("jobs-{number:02}"), 0, 1, &[]));
    let mut cursor = Cursor::default();
    cursor.go_to(20, &state.sorted());
    state.cursor = cursor;
    let picture = picture(&state);
    assert!(!picture.contains("jobs-18") && picture.contains("jobs-19"), "{picture}");
    assert!(picture.contains("jobs-37") && !picture.contains("jobs-38"), "{picture}");
}

#[test]
fn holders_and_waiters_share_the_screen() {
    let mut state = state(80, 24);
    open(&mut state, "web-1.4711");
    let picture = picture(&state);
    for text in ["HOLDERS", "4294967295", "29s", "WAITERS", "1h 1m", "dead", "sT1bLc"] {
        assert!(picture.contains(text), "{text}: {picture}");
    }
}

#[test]
fn groups_are_drawn_with_bars_in_terminals_of_any_width() {
    let group = |name: &str, held: u64, cap| {
        let cells = [name, &held.to_string(), "2", "1m 5s", "7", "-", "-"].map(str::to_owned);
        Group { held, cap, cells: cells.into() }
    };
    let groups =
        vec![group("long-name-of-a-tenant", 2, None), group("a", 2, Some(2)), group("b", 0, None)];
    for width in [20, 40, 80, 120] {
        let mut state = state(width, 24);
        open(&mut state, "web-1");
        let summary = Summary { limit: Some(4), held: 3, queued: 2, ..Summary::default() };
        let open = state.open.as_mut().unwrap();
        open.look = Some(Ok(Look { summary, groups: groups.clone(), ..Look::default() }));
        open.shows_groups = true;
        let shown = picture(&state);
        assert!(shown.contains("GROUP") && !shown.contains("HOLDERS"), "{shown}");
        if width < 80 {
            continue;
        }
        let of = |group: &str| shown.lines().find(|line| line[1..].starts_with(group)).unwrap();
        assert!(of("long-name-of-a-te").contains(" █████·····"), "{shown}");
        assert!(of("a ").contains(" ██████████ "), "{shown}");
        assert!(of("b ").contains(" ·········· ") && of("b ").contains(" 1m 5s "), "{shown}");
    }
}

/// A look may return only some of the holders and waiters.
#[test]
fn a_partial_list_of_holders_or_waiters_says_how_many_it_shows() {
    let mut state = state(80, 24);
    for (more, heads) in
        [(0, ["HOLDERS ", "WAITERS "]), (1, ["HOLDERS (first 30)", "WAITERS (first 30)"])]
    {
        open(&mut state, "web-1.4711");
        let look = state.open.as_mut().and_then(|open| open.look.as_mut()?.as_mut().ok()).unwrap();
        look.summary.held = 30 * u64::from(u32::MAX) + more;
        look.summary.queued = 30 + more;
        let picture = picture(&state);
        assert!(heads.iter().all(|head| picture.contains(head)), "{picture}");
        assert_eq!(picture.contains("first"), more > 0, "{picture}");
    }
}

#[test]
fn drawing_extreme_text_at_extreme_sizes_does_not_panic() {
    let names = [
        &*"x".repeat(512),
        &*"漢".repeat(170),
        &*"👩‍👩‍👧‍👦".repeat(20),
        &*"👍🏽".repeat(60),
        "e\u{301}\u{202e}abc",
        "\u{9b}2J",
    ];
    let dialogue = |kind| {
        let victim = Victim { id: "i".repeat(300), client_name: "漢".repeat(100), kind };
        Dialogue::Revoke { name: "n".repeat(512), victim }
    };
    let permit = Kind::Permit { lease: Some(Duration::from_secs(30)) };
    let limit = Dialogue::Limit {
        name: "漢".repeat(170),
        now: Summary::default(),
        typed: "9999999999".to_owned(),
    };
    let dialogues = [None, Some(dialogue(permit)), Some(dialogue(Kind::Request)), Some(limit)];
    for (width, height) in [(80, 24), (200, 60), (40, 10), (10, 4), (3, 3), (1, 1)] {
        for dialogue in &dialogues {
            let mut state = state(width, height);
            for name in names {
                add(&mut state, name, u64::MAX, u32::MAX, &[u64::from(u32::MAX)]);
            }
            state.dialogue = dialogue.clone();
            state.message = Some("漢字 ".repeat(300));
            state.contact.trouble = Some("x".repeat(1000));
            picture(&state);
            for name in names {
                open(&mut state, name);
                picture(&state);
            }
        }
    }
}

/// A cut number must not look like another number.
#[test]
fn a_truncated_number_is_marked_at_every_width() {
    const NUMBER: u32 = 987_654;
    let is_another = |number: &str| number.starts_with('9') && number != NUMBER.to_string();
    let check = |state: &State| {
        let picture = picture(state);
        let mut numbers = picture.split(|c: char| !c.is_ascii_digit() && c != '…');
        let wrong = numbers.find(|number| is_another(number) && !number.ends_with('…'));
        assert_eq!(wrong, None, "{picture}");
    };
    let many = u64::from(NUMBER);
    let summary = Summary {
        limit: Some(NUMBER),
        held: many,
        queued: many,
        longest_wait: Some(Duration::from_secs(many * 3600)),
        ..Summary::default()
    };
    for width in 1..130 {
        let mut state = state(width, 24);
        let row = Row { summary: Some(Ok(summary.clone())), ..Row::default() };
        state.rows.insert("jobs".to_owned(), row);
        check(&state);
        open(&mut state, "web");
        let look = state.open.as_mut().and_then(|open| open.look.as_mut()?.as_mut().ok()).unwrap();
        look.summary = summary.clone();
        look.holders.iter_mut().for_each(|holder| holder.weight = NUMBER);
        look.waiters.iter_mut().for_each(|waiter| {
            (waiter.weight, waiter.position) = (NUMBER, many);
        });
        look.holders.iter_mut().for_each(|holder| holder.id = "P:web:1:30000:x".to_owned());
        look.waiters.iter_mut().for_each(|waiter| waiter.id = "P:web:1:30000:y".to_owned());
        check(&state);
    }
}

fn must_be_escaped(state: &State) {
    let picture = picture(state);
    assert_eq!(escape::text(&picture), picture);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..Default::default() })]
    #[test]
    fn untrusted_text_is_escaped_wherever_it_is_drawn(written in written(), width in 1..200u16) {
        let mut state = state(width, 24);
        state.prefix = written.clone();
        state.pattern = Some(written.parse().unwrap());
        state.list = Some(List { last: SystemTime::now(), trouble: None });
        must_be_escaped(&state);
        add(&mut state, &written, 1, 2, &[1]);
        must_be_escaped(&state);
        state.message = Some(written.clone());
        let row = state.rows.values_mut().next().unwrap();
        row.trouble = Some(written.clone());
        must_be_escaped(&state);
        row_is_unreadable(&mut state, &written);
        must_be_escaped(&state);
        state.list = Some(List { last: SystemTime::now(), trouble: Some(written.clone()) });
        must_be_escaped(&state);
        let (name, id, client_name) = (written.clone(), written.clone(), written.clone());
        let victim = Victim { id, client_name, kind: Kind::Request };
        state.dialogue = Some(Dialogue::Revoke { name: name.clone(), victim });
        must_be_escaped(&state);
        let (now, typed) = (Summary::default(), written.clone());
        state.dialogue = Some(Dialogue::Limit { name, now, typed });
        must_be_escaped(&state);
        (state.dialogue, state.message, state.list) = (None, None, None);
        open(&mut state, &written);
        must_be_escaped(&state);
        state.rows.clear();
        must_be_escaped(&state);
        let opened = state.open.as_mut().unwrap();
        opened.name = written.clone();
        opened.look = None;
        must_be_escaped(&state);
        state.open.as_mut().unwrap().look = Some(Err(written));
        must_be_escaped(&state);
    }
}

fn written() -> impl Strategy<Value = String> {
    let steering = "[\u{1b}\\[2J\u{7}\u{85}\u{9b}\u{202e}\u{2028}\u{feff}\u{200d}\u{301}a漢👩\u{e0041}\u{3164} ]{1,40}";
    prop_oneof![steering, any::<String>()]
}

fn row_is_unreadable(state: &mut State, reason: &str) {
    for row in state.rows.values_mut() {
        (row.summary, row.trouble) = (Some(Err(reason.to_owned())), None);
    }
}

#[test]
fn the_revoke_dialogue_shows_how_long_two_holders_may_overlap() {
    let mut state = state(80, 24);
    let kind = Kind::Permit { lease: Some(Duration::from_secs(30)) };
    let victim = Victim { id: "P:a.b:1:30000:x".to_owned(), client_name: "a".to_owned(), kind };
    state.dialogue = Some(Dialogue::Revoke { name: "jobs".to_owned(), victim });
    let picture = picture(&state);
    for text in ["up to 10s", "up to 30s", "y: revoke"] {
        assert!(picture.contains(text), "{text}: {picture}");
    }
}
