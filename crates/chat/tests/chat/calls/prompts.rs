//! Tools, calls and their results as templates write them, and read back.

use rope_cpu_chat::{Error, Message, Role, Template, ToolChoice, Tools};
use rope_cpu_json as json;

use super::{TEMPLATES, call, parse, template, tool, tools};

#[test]
fn a_format_is_found_by_the_call_that_a_template_renders() {
    for (name, format, _) in TEMPLATES {
        assert_eq!(template(name).format().name(), *format, "{name}");
    }
}

#[test]
fn a_rendered_call_is_read_again() {
    let arguments = r#"{"place":"Paris, \"75\" {é}\n<x>","days":3}"#;
    for (name, ..) in TEMPLATES {
        let template = template(name);
        let user = Message::new(Role::User, "Question?");
        let assistant = Message {
            tool_calls: vec![call("weather", arguments)],
            ..Message::new(Role::Assistant, "")
        };
        let tools = tools(ToolChoice::Auto);
        let before = template.render(std::slice::from_ref(&user), tools.all(), true).unwrap();
        let whole = template.render(&[user, assistant], tools.all(), false).unwrap();
        let same = before.chars().zip(whole.chars()).take_while(|(a, b)| a == b);
        let answer: String = whole.chars().skip(same.count()).collect();
        let answer = parse(template.format(), &before, &answer);
        assert_eq!(answer.calls.len(), 1, "{name}: {whole}");
        let (found, _, found_arguments, complete) = &answer.calls[0];
        assert_eq!(found, "weather");
        assert!(complete, "{name}");
        let value = |text: &str| json::parse::<serde_json::Value>(text).unwrap();
        assert_eq!(value(found_arguments), value(arguments), "{name}");
    }
}

#[test]
fn tools_and_results_are_in_the_prompt() {
    for (name, ..) in TEMPLATES {
        let messages = [
            Message::new(Role::User, "Question?"),
            Message {
                tool_calls: vec![call("add", r#"{"a": 1, "b": 41}"#)],
                ..Message::new(Role::Assistant, "")
            },
            Message {
                tool_call_id: "abcdefghi".into(),
                name: "add".into(),
                ..Message::new(Role::Tool, "forty-two")
            },
        ];
        let tools = tools(ToolChoice::Auto);
        let prompt = template(name).render(&messages, tools.all(), true).unwrap();
        for part in ["weather", "add", "41", "forty-two"] {
            assert!(prompt.contains(part), "{name}: {part} in {prompt}");
        }
    }
}

#[test]
fn reasoning_before_a_call_is_in_the_prompt() {
    let call = Message {
        reasoning: "Because.".into(),
        tool_calls: vec![call("add", "{}")],
        ..Message::new(Role::Assistant, "I add.")
    };
    for name in ["hermes", "harmony"] {
        let template = template(name);
        let prompt = template.render(std::slice::from_ref(&call), &[], false).unwrap();
        assert!(prompt.contains("Because.") && prompt.contains("I add."), "{prompt}");
    }
}

#[test]
fn a_template_without_tools_has_them_in_the_system_message() {
    let tools =
        Tools::new(vec![tool("f", r#"{"type": "object"}"#)], ToolChoice::Auto, true).unwrap();
    let messages = [Message::new(Role::System, "Be brief."), Message::new(Role::User, "Hi")];
    let prompt = template("smollm2").render(&messages, tools.all(), true).unwrap();
    assert!(prompt.starts_with(
        "<|im_start|>system\nBe brief.\n\nYou can call these functions:\n\
         {\"name\":\"f\",\"description\":\"Computes f.\",\"parameters\":{\"type\":\"object\"}}\n"
    ));
    let asked = template("smollm2").render(&messages[1..], tools.all(), true).unwrap();
    assert!(asked.starts_with("<|im_start|>system\nYou can call these functions:\n"), "{asked}");
}

#[test]
fn a_result_without_a_name_has_the_one_of_its_call() {
    let answer =
        Message { tool_calls: vec![call("add", "{}")], ..Message::new(Role::Assistant, "") };
    let result =
        Message { tool_call_id: answer.tool_calls[0].id.clone(), ..Message::new(Role::Tool, "42") };
    let prompt = template("smollm2").render(&[answer, result], &[], true).unwrap();
    assert!(prompt.contains("Result of add:\n42"), "{prompt}");
}

#[test]
fn arguments_are_an_object_or_a_text_as_the_template_reads_them() {
    let render = |source: &str, arguments: &str| {
        let message =
            Message { tool_calls: vec![call("f", arguments)], ..Message::new(Role::Assistant, "") };
        let around = "{{ tools | tojson if tools else '' }}{% for m in messages %}\
                      {% for c in m.tool_calls %}<tool_call>{\"name\": \"{{ c.function.name }}\", \
                      \"arguments\": ARGUMENTS}</tool_call>{% endfor %}{% endfor %}";
        let source = around.replace("ARGUMENTS", source);
        Template::new(&source, "", "").unwrap().render(&[message], &[], false)
    };
    let expected = "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1.50}}</tool_call>";
    let given = r#"{"a": 1.50}"#;
    assert_eq!(render("{{ c.function.arguments }}", given).unwrap(), expected);
    let by_object = render("{{ c.function.arguments | tojson }}", given).unwrap();
    assert_eq!(by_object, expected.replace("1.50", "1.5"));
    assert_eq!(
        render("{{ c.function.arguments }}", "nothing").unwrap().matches("nothing").count(),
        1
    );
    let error = render("{{ c.function.arguments | tojson }}", "nothing").unwrap_err();
    assert!(matches!(error, Error::CallArguments { .. }), "{error}");
}

#[test]
fn texts_are_lists_of_parts_where_a_template_reads_only_these() {
    let source = "{% for m in messages %}{% for part in m.content %}\
                  {% if part['type'] == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endfor %}";
    let template = Template::new(source, "", "").unwrap();
    assert_eq!(template.render(&[Message::new(Role::User, "Hi")], &[], true).unwrap(), "Hi");
}

#[test]
fn developers_are_systems_where_a_template_does_not_have_them() {
    let render = |source| {
        let template = Template::new(source, "", "").unwrap();
        template.render(&[Message::new(Role::Developer, "")], &[], false).unwrap()
    };
    assert_eq!(render("{{ messages[0].role }}"), "system");
    assert_eq!(render("{{ messages[0].role }}{# developer #}"), "developer");
}
