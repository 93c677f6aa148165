//! Chat templates against Jinja itself; `scripts/make-chat-golden` made the expected texts.

use rope_cpu::{
    chat::{Error, Message, Template},
    json,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    template: String,
    bos: String,
    eos: String,
    arguments: String,
    messages: Vec<Message>,
    add_generation_prompt: bool,
    text: Option<String>,
    refused: Option<String>,
    fails: Option<bool>,
}

fn source(name: &str) -> &'static str {
    match name {
        "smollm2" => include_str!("data/chat/smollm2.jinja"),
        "gemma3" => include_str!("data/chat/gemma3.jinja"),
        "features" => include_str!("data/chat/features.jinja"),
        "chatml" => include_str!("../src/chat/chatml.jinja"),
        "llama3" => include_str!("../src/chat/llama3.jinja"),
        "gemma" => include_str!("../src/chat/gemma.jinja"),
        other => panic!("no template {other}"),
    }
}

fn message(role: &str, content: &str) -> Message {
    Message::new(role, content)
}

#[test]
fn conversations_render_as_in_jinja() {
    let cases: Vec<Case> = json::parse(include_str!("data/chat/golden.json")).unwrap();
    let mut rendered = 0;
    for case in cases {
        let template = Template::new(source(&case.template), &case.bos, &case.eos)
            .and_then(|template| template.arguments(&case.arguments))
            .unwrap();
        let found = template.render(&case.messages, case.add_generation_prompt);
        let what = format!("{} {:?}", case.template, case.messages);
        match (found, case.text, case.refused, case.fails) {
            (Ok(found), Some(text), ..) => assert_eq!(found, text, "{what}"),
            (Err(Error::Refused { message }), _, Some(refused), _) => {
                assert_eq!(message, refused, "{what}");
            }
            (Err(Error::Render { .. }), .., Some(true)) => {}
            (found, text, ..) => panic!("{what}: {found:?} instead of {text:?}"),
        }
        rendered += 1;
    }
    assert!(rendered > 200);
}

#[test]
fn one_more_turn_extends_the_text_of_those_before() {
    for name in ["smollm2", "gemma3", "chatml", "llama3", "gemma"] {
        let template = Template::new(source(name), "<bos>", "<eos>").unwrap();
        let mut messages = vec![message("system", "Be brief.")];
        let mut before = String::new();
        for turn in 0..3 {
            messages.push(message("user", &format!("Question {turn}?")));
            let asked = template.render(&messages, true).unwrap();
            assert!(asked.starts_with(&before), "{name}: {asked:?} after {before:?}");
            let answer = format!("Answer {turn}.");
            messages.push(message("assistant", &answer));
            before = asked + &answer;
            let answered = template.render(&messages, false).unwrap();
            assert!(answered.starts_with(&before), "{name}: {answered:?} after {before:?}");
        }
    }
}

#[test]
fn a_template_that_is_not_valid_names_its_line() {
    let error = Template::new("{{ a }}\n{% if %}", "", "").unwrap_err();
    assert!(matches!(error, Error::Syntax { .. }));
    assert!(error.to_string().contains("line 2"), "{error}");
}

#[test]
fn a_template_that_fails_says_why() {
    for (source, reason) in [
        ("\n\n{{ messages[0].content.nothing() }}", "line 3"),
        ("{{ nothing() }}", "nothing"),
        ("{{ 1 | nothing }}", "nothing"),
        (
            "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
            "fuel",
        ),
        ("{{ 'a' * 100000000000 }}", "too large"),
        ("{{ strftime_now('%') }}", "strftime_now"),
        ("{{ messages | tojson(nonsense=1) }}", "nonsense"),
        ("{{ messages | tojson(separators=1) }}", "line 1"),
        ("{{ messages.x | tojson }}", "undefined"),
        ("{{ 'abc' | indent(9999999999999999999) }}", "too large"),
        ("{{ 'abc' | indent(width=99999999999999) }}", "too large"),
        ("{{ '%-9999999999d' | format(3) }}", "too large"),
        ("{{ '{:>9999999999}'.format(1) }}", "too large"),
        ("{{ [1] | batch(99999999999, 'x') }}", "too large"),
        ("{{ [1] | slice(99999999999) }}", "too large"),
    ] {
        let rendered = Template::new(source, "", "")
            .and_then(|template| template.render(&[message("user", "hello")], true));
        let error = rendered.expect_err(source).to_string();
        assert!(error.contains(reason), "{source}: {error}");
    }
}

#[test]
fn filters_that_count_work_as_ever() {
    let source = "{{ 'a\nb' | indent(2) }} {{ 'a' | indent(width=1, first=true) }} \
                  {{ '%3d' | format(3) }} {{ '{:>3}'.format(1) }} {{ [1, 2, 3] | batch(2) | length }}";
    let template = Template::new(source, "", "").unwrap();
    assert_eq!(template.render(&[], true).unwrap(), "a\n  b  a   3   1 2");
}

#[test]
fn the_time_is_that_at_which_the_conversation_began() {
    let template = Template::new("{{ strftime_now('%Y-%m-%d %H:%M:%S.%f') }}", "", "").unwrap();
    let first = template.render(&[], true).unwrap();
    assert!(first.starts_with("20"), "{first}");
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert_eq!(template.render(&[], true).unwrap(), first);
}

#[test]
fn arguments_are_a_json_object_and_later_ones_win() {
    let template = || Template::new("{{ a }} {{ b + 1 }}", "", "").unwrap();
    let given = template().arguments(r#"{"a": 1, "b": 0.5}"#).unwrap();
    let given = given.arguments(r#"{"a": "later"}"#).unwrap();
    assert_eq!(given.render(&[], false).unwrap(), "later 1.5");
    assert!(matches!(template().arguments("[1]"), Err(Error::Arguments(_))));
}
