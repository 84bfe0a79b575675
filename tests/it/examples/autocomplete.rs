use super::{Process, fails, output_of};
use test_support::server::unique_name;

async fn ask(arguments: &[&str]) -> Vec<String> {
    output_of("autocomplete", arguments).await.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn recent_contacts_are_recalled_by_prefix() {
    let user = unique_name();
    for contact in ["Ödön", "Øystein", "Odile", "ödipus", "Ödön"] {
        ask(&["remember", &user, contact]).await;
    }
    assert_eq!(ask(&["recall", &user, "ö"]).await, ["Ödön", "ödipus"]);
    assert_eq!(ask(&["recall", &user, "ÖDI"]).await, ["ödipus"]);
    assert_eq!(ask(&["recall", &user, ""]).await, ["Ödön", "ödipus", "Odile", "Øystein"]);
    assert_eq!(ask(&["recall", &user, "x"]).await, [""; 0]);
}

#[tokio::test]
async fn members_are_completed_in_order_in_any_writing_system() {
    let guild = unique_name();
    // The last name contains the highest Unicode character.
    for member in ["Zoë", "zoe", "Zürich", "Åse", "東京", "東北", "Жанна", "🦀", "🦀\u{10ffff}"]
    {
        assert_eq!(ask(&["join", &guild, member]).await, ["joined"]);
    }
    let complete = async |prefix| ask(&["complete", &guild, prefix]).await;
    assert_eq!(complete("zo").await, ["zoe", "Zoë"]);
    assert_eq!(complete("ZOË").await, ["Zoë"]);
    assert_eq!(complete("å").await, ["Åse"]);
    assert_eq!(complete("東").await, ["東京", "東北"]);
    assert_eq!(complete("ж").await, ["Жанна"]);
    assert_eq!(complete("🦀").await, ["🦀", "🦀\u{10ffff}"]);
    assert_eq!(complete("").await.len(), 9);
    for member in ["Νίκος", "ΝΊΚΟΣΤΡΑΤΟΣ"] {
        ask(&["join", &guild, member]).await;
    }
    assert_eq!(complete("ΝΊΚΟΣ").await, ["Νίκος", "ΝΊΚΟΣΤΡΑΤΟΣ"], "a sigma at the end");
    assert_eq!(ask(&["join", &guild, "Zoë"]).await, ["was already a member"]);
    assert_eq!(ask(&["leave", &guild, "Zoë"]).await, ["left"]);
    assert_eq!(ask(&["leave", &guild, "Zoë"]).await, ["was not a member"]);
    assert_eq!(complete("zo").await, ["zoe"]);
}

#[tokio::test]
async fn permanent_members_are_completed_while_another_member_joins_and_leaves() {
    let guild = unique_name();
    for member in ["Miriam", "Mira"] {
        ask(&["join", &guild, member]).await;
    }
    for _ in 0..5 {
        let mut asked: Vec<_> = ["join", "complete", "leave", "complete"]
            .into_iter()
            .map(|task| match task {
                "complete" => Process::start("autocomplete", &[task, &guild, "mir"]),
                _ => Process::start("autocomplete", &[task, &guild, "Mirko"]),
            })
            .collect();
        for index in [1, 3] {
            let mut names = Vec::new();
            while let Some(name) = asked[index].line().await {
                names.push(name);
            }
            let stay: Vec<_> = names.iter().filter(|name| *name != "Mirko").collect();
            assert_eq!(stay, ["Mira", "Miriam"], "{names:?}");
            assert!(names.is_sorted(), "{names:?}");
        }
    }
}

#[tokio::test]
async fn invalid_arguments_are_rejected_with_a_message() {
    fails("autocomplete", &[], 2, "Usage: autocomplete").await;
    fails("autocomplete", &["join", "guild"], 2, "<MEMBER>").await;
    fails("autocomplete", &["join", "guild", ""], 1, "a name must not be empty").await;
}
