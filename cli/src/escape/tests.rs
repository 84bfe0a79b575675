use proptest::prelude::*;
use unicode_normalization::UnicodeNormalization;

use super::*;

/// Returns the original text of an escaped text.
fn unescaped(shown: &str) -> String {
    let mut parts = shown.split("\\u{");
    let mut text = parts.next().unwrap().to_owned();
    for part in parts {
        let (digits, rest) = part.split_once('}').unwrap();
        text.push(u32::from_str_radix(digits, 16).ok().and_then(char::from_u32).unwrap());
        text.push_str(rest);
    }
    text
}

#[track_caller]
fn must_be_safe(shown: &str) {
    let is_steering = |c: &char| c.is_control() || (c.is_whitespace() && *c != ' ');
    assert_eq!(shown.chars().find(is_steering), None, "{shown:?}");
    assert!(is_nfc(shown), "{shown:?}");
    // Each character is visible, or a mark on a visible character.
    let mut marks = MOST_MARKS;
    for c in shown.chars() {
        marks = if c.width() > Some(0) && !is_combining_mark(c) { 0 } else { marks + 1 };
        assert!(marks <= MOST_MARKS, "{shown:?}");
    }
    assert_eq!(line(shown), shown);
}

/// Texts of any characters, including characters that affect each other when they are adjacent.
fn texts() -> impl Strategy<Value = String> {
    let special = "[ \\\\u{}\n\u{1b}\u{85}\u{9b}\u{202e}\u{2028}\u{feff}\u{200d}\u{fe0f}a-eกั漢👩가-깋\u{1100}-\u{1112}\
                   \u{1161}-\u{1175}\u{11a8}-\u{11c2}\u{300}-\u{345}\u{3099}か\u{9c7}\u{9be}\u{1b05}\u{1b35}\u{212a}\
                   \u{16d67}-\u{16d6a}\u{e000}\u{10ffff}]{0,12}";
    prop_oneof![special, any::<String>(), any::<Vec<char>>().prop_map(String::from_iter)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]
    #[test]
    fn any_text_is_safe_for_a_terminal_after_escaping(text in texts()) {
        must_be_safe(&line(&text));
        must_be_safe(&value(&text));
        let kept = super::text(&text);
        kept.split('\n').for_each(must_be_safe);
        prop_assert_eq!(kept.matches('\n').count(), text.matches('\n').count());
    }

    /// Two different values have different outputs, because each value can be restored from its
    /// output.
    #[test]
    fn a_value_can_be_restored_from_its_escaped_form(text in texts()) {
        prop_assert_eq!(unescaped(&value(&text)), text);
    }

    #[test]
    fn json_strings_are_safe_for_a_terminal_and_exact(text in texts()) {
        let written = json(&text);
        must_be_safe(&written);
        prop_assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
    }

    #[test]
    fn different_normal_forms_of_a_text_look_different(text in texts()) {
        let (one, other): (String, String) = (text.nfc().collect(), text.nfd().collect());
        prop_assert_eq!(one == other, value(&one).nfc().eq(value(&other).nfc()));
    }
}

/// The first part of the second vowel sign combines with the first vowel sign.
#[test]
fn a_character_that_combines_with_a_part_of_the_next_one_is_safe() {
    must_be_safe(&line("\u{16d67}\u{16d68}"));
}

#[test]
fn unsafe_characters_are_escaped() {
    // Tests each character below U+3200, and a sample of the characters above.
    let beyond =
        ('\u{3200}'..'\u{34000}').step_by(29).chain(('\u{e0000}'..'\u{e1000}').step_by(29));
    for c in ('\0'..'\u{3200}').chain(beyond).chain(['\u{f0000}', char::MAX]) {
        must_be_safe(&line(&format!("{c}a{c}")));
    }
    for (raw, shown) in [
        ("a\u{9b}2J\u{1b}[2J\u{7f}\u{85}", "a\\u{9b}2J\\u{1b}[2J\\u{7f}\\u{85}"),
        ("\u{202e}\u{2066}\u{200b}\u{feff}\u{ad}", "\\u{202e}\\u{2066}\\u{200b}\\u{feff}\\u{ad}"),
        ("a\u{2028}b\u{2029}c\u{a0}d\u{3000}", "a\\u{2028}b\\u{2029}c\\u{a0}d\\u{3000}"),
        ("\u{e0061}\u{fdd0}\u{378}\u{e000}", "\\u{e0061}\\u{fdd0}\\u{378}\\u{e000}"),
        ("\u{3164}\u{ffa0}\u{115f}\u{2800}\u{34f}", "\\u{3164}\\u{ffa0}\\u{115f}\\u{2800}\\u{34f}"),
        ("❤\u{fe0f}👩\u{200d}👧", "❤\\u{fe0f}👩\\u{200d}👧"),
        ("\u{301}a", "\\u{301}a"),
        (" \u{301}", " \\u{301}"),
        ("e\u{301}", "e\\u{301}"),
        ("\u{212a}", "\\u{212a}"),
        ("か\u{3099}", "か\\u{3099}"),
        ("\u{1112}\u{1161}\u{11ab}", "\u{1112}\\u{1161}\\u{11ab}"),
        ("q\u{307}\u{323}", "q\\u{307}\\u{323}"),
        ("x\u{334}\u{334}\u{334}\u{334}\u{334}", "x\u{334}\u{334}\u{334}\u{334}\\u{334}"),
    ] {
        assert_eq!(line(raw), shown);
    }
}

#[test]
fn ordinary_text_in_many_scripts_is_not_escaped() {
    for text in [
        "jobs-1: \"a\\*b\" {x} ~",
        "漢字 かが 한국어",
        "Größe é ñ ợ",
        "Работа Ελλάδα ὀδύσσεια",
        "สวัสดีที่นี่",
        "हिन्दी नौकरियाँ",
        "עִבְרִית",
        "العَرَبِيَّة",
        "👍🏽 🇩🇪 🎉",
        "x\u{331}\u{30c}",
    ] {
        assert_eq!(line(text), text);
    }
}

#[test]
fn an_argument_with_copied_escapes_is_rejected_with_a_bash_spelling() {
    for name in ["jobs", "a\\u", "\\u{", "\\u{x}", "\u{9b}"] {
        assert_eq!(argument(name).as_deref(), Ok(name));
    }
    let copied = argument("it's \\ e\\u{301}x\\u{5c}");
    assert!(
        copied
            .as_ref()
            .is_err_and(|reported| reported.ends_with(r"$'it\'s \\ e\U00000301x\U0000005c'")),
        "{copied:?}"
    );
}

#[test]
fn leading_trailing_and_repeated_spaces_in_a_value_are_escaped() {
    for (raw, shown) in [
        ("a b", "a b"),
        (" a", "\\u{20}a"),
        ("a  b ", "a \\u{20}b\\u{20}"),
        (" ", "\\u{20}"),
        ("\\u{9b}", "\\u{5c}u{9b}"),
        ("\\u \\", "\\u \\"),
        ("", ""),
    ] {
        assert_eq!(value(raw), shown);
    }
}
