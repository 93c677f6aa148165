//! Reasoning before an answer, and its limit.

use rope_cpu_chat::{Budget, Event, Message, Role, Template, Tools};

use super::{format, parse, template};

#[test]
fn a_prompt_may_have_begun_the_reasoning() {
    let answer = parse(format("hermes"), "<|im_start|>assistant\n<think>\n", "a\n</think>\n\nb");
    assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), ("a", "b"));
    let answer = parse(format("hermes"), "<think>\n\n</think>\n\n", "a");
    assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), ("", "a"));
    let prompt = template("hermes").arguments(r#"{"enable_thinking": false}"#).unwrap();
    let prompt = prompt.render(&[Message::new(Role::User, "a")], &[], true).unwrap();
    assert!(prompt.ends_with("<think>\n\n</think>\n\n"), "{prompt}");
}

#[test]
fn a_template_may_start_reasoning_with_words() {
    let source = "Here are my reasoning steps:\n{# [BEGIN FINAL RESPONSE] #}";
    let template = Template::new(source, "", "").unwrap();
    let prompt = template.render(&[], &[], true).unwrap();
    let answer = parse(template.format(), &prompt, "a\n[BEGIN FINAL RESPONSE]\nb");
    assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), ("a", "b"));
}

#[test]
fn a_prompt_may_skip_the_reasoning() {
    for (prompt, expected) in [
        ("<think>\n", "<think>\n</think>"),
        ("<think>\n\n</think>\n\n", "<think>\n\n</think>\n\n"),
        ("a", "a<think></think>"),
    ] {
        assert_eq!(format("hermes").skip_reasoning(prompt.into()), expected);
    }
    assert_eq!(format("smollm2").skip_reasoning("a".into()), "a");
}

#[test]
fn reasoning_may_stay_in_the_text() {
    let raw = "<think>\na\n</think>\n\nb";
    let answer = parse(format("hermes").without_reasoning(), "", raw);
    assert_eq!((answer.reasoning.as_str(), answer.text.as_str()), ("", raw));
    assert!(format("hermes").reasons() && !format("hermes").without_reasoning().reasons());
    assert!(format("harmony").reasons() && !format("smollm2").reasons());
}

#[test]
fn a_limit_ends_reasoning() {
    let tools = Tools::default();
    let mut parser = format("hermes").parser("<think>\n", &tools);
    let mut budget = Budget::new(2, &parser);
    for (token, forced) in [("a", None), (" b", Some("\n</think>\n\n"))] {
        assert_eq!(budget.forced(&parser), None);
        parser.push(token);
        budget.count(&parser);
        assert_eq!(budget.forced(&parser), forced);
    }
    parser.push("\n</think>\n\n");
    budget.count(&parser);
    assert_eq!(budget.forced(&parser), None);
    assert_eq!(parser.push("c"), [Event::Text("c".into())]);
    // The token that opens reasoning is not part of it.
    let mut parser = format("hermes").parser("", &tools);
    let mut budget = Budget::new(1, &parser);
    for (token, forced) in [("<think>", false), ("a", true)] {
        parser.push(token);
        budget.count(&parser);
        assert_eq!(budget.forced(&parser).is_some(), forced);
    }
    // A limit of 0 stops it before it starts.
    let parser = format("hermes").parser("<think>", &tools);
    assert!(Budget::new(0, &parser).forced(&parser).is_some());
}
