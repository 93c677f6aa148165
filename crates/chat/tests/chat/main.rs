//! Chat templates against Jinja itself; `scripts/make-chat-golden` made the expected texts.

mod calls;
mod grammar;

use std::time::{Duration, Instant};

use rope_cpu_chat::{Error, Message, Role, Template};
use rope_cpu_json as json;
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
        "smollm2" => include_str!("../data/smollm2.jinja"),
        "gemma3" => include_str!("../data/gemma3.jinja"),
        "features" => include_str!("../data/features.jinja"),
        "chatml" => include_str!("../../src/chatml.jinja"),
        "llama3" => include_str!("../../src/llama3.jinja"),
        "gemma" => include_str!("../../src/gemma.jinja"),
        other => panic!("no template {other}"),
    }
}

fn message(role: Role, content: &str) -> Message {
    Message::new(role, content)
}

#[test]
fn conversations_render_as_in_jinja() {
    let cases: Vec<Case> = json::parse(include_str!("../data/golden.json")).unwrap();
    let mut rendered = 0;
    for case in cases {
        let template = Template::new(source(&case.template), &case.bos, &case.eos)
            .and_then(|template| template.arguments(&case.arguments))
            .unwrap();
        let found = template.render(&case.messages, &[], case.add_generation_prompt);
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

#[derive(Deserialize)]
struct Expressions {
    variables: serde_json::Value,
    cases: Vec<Expression>,
}

#[derive(Deserialize)]
struct Expression {
    source: String,
    text: Option<String>,
    fails: Option<String>,
}

#[test]
fn expressions_have_the_values_that_python_gives_them() {
    let golden: Expressions = json::parse(include_str!("../data/expressions.json")).unwrap();
    assert!(golden.cases.len() > 200);
    let variables = golden.variables.to_string();
    let mut wrong = Vec::new();
    for Expression { source, text, fails } in golden.cases {
        let found = Template::new(&source, "", "")
            .and_then(|template| template.arguments(&variables))
            .and_then(|template| template.render(&[], &[], false));
        match (&found, &text) {
            (Ok(found), Some(text)) if found == text => {}
            (Err(_), None) => {}
            _ => wrong.push(format!("{source}\n  want {text:?} {fails:?}\n  have {found:?}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Sources that ask for too much memory, stack or time, and a word of the expected error.
fn attacks() -> Vec<(String, &'static str)> {
    let set = "{% set ns = namespace(a='aaaaaaaaaa', b=[1], c=[1]) %}";
    let looped = |times: usize, body: &str| {
        format!("{set}{{% for i in range({times}) %}}{body}{{% endfor %}}")
    };
    let shared =
        |end: &str| looped(100, "{% set ns.b = [ns.b, ns.b] %}{% set ns.c = [ns.c, ns.c] %}") + end;
    // The same in a macro that calls itself, without a check of its arguments.
    let nested = |end: &str| {
        format!(
            "{{% macro f(b, c, n) %}}{{% if n %}}{{{{ f([b, b], [c, c], n - 1) }}}}{{% else %}}\
             {end}{{% endif %}}{{% endmacro %}}{{{{ f([1], [1], 60) }}}}"
        )
    };
    let many = |before: &str, part: &str, times: usize, after: &str| {
        format!("{before}{}{after}", part.repeat(times))
    };
    let large_text = |expression: &str| {
        format!(
            "{{% set a = 'a' * 10000000 %}}{{% for i in range(99999) %}}\
             {{% set b = {expression} %}}{{% endfor %}}"
        )
    };
    let (large, deep) = ("too large", "deep");
    let mut attacks = vec![
        // Growing text and lists.
        (looped(60, "{% set ns.a = ns.a + ns.a %}"), large),
        (looped(60, "{% set ns.a = ns.a ~ ns.a %}"), large),
        (looped(60, "{% set ns.a = ns.a * 10 %}"), large),
        (looped(60, "{% set ns.b = ns.b + ns.b %}"), large),
        (looped(60, "{% set ns.b = ns.b * 10 %}"), large),
        (looped(99_999, "{% set ns.b = ns.b + [('x' * 10000) ~ i] %}"), large),
        (looped(99_999, "{{ 'x' * 100000 }}"), large),
        (looped(60, "{% set ns.a %}{{ ns.a }}{{ ns.a }}{% endset %}"), large),
        // Nested values.
        (looped(99_999, "{% set ns.a = [ns.a] %}"), deep),
        (looped(99_999, "{% set ns.a = (ns.a,) %}"), deep),
        (looped(99_999, "{% set ns.a = {'a': ns.a} %}"), deep),
        (looped(99_999, "{% set ns.b = ns.b|batch(1) %}"), deep),
        (looped(99_999, "{% set ns.a = namespace(a=ns) %}"), "cannot be kept"),
        (shared(""), large),
        (nested("{{ b }}"), large),
        (nested("{{ b|tojson }}"), large),
        (nested("{{ b == c }}"), large),
        (nested("{{ b < c }}"), large),
        (nested("{{ b in [c] }}"), large),
        (nested("{{ {(b, c): 1} }}"), large),
        (nested("{{ [b, c]|sort }}"), large),
        (nested("{{ b|string }}"), large),
        (nested("{{ '%s' % (b,) }}"), large),
        (nested("{{ '{}'.format(b) }}"), large),
        (nested("{% for x in [1] %}{{ loop.changed(b) }}{% endfor %}"), large),
        // Nested sources.
        (many("{{ ", "1+", 20_000, "1 }}"), "words"),
        (many("{{ ", "a ~ ", 40_000, "a }}"), "words"),
        (many("{{ ", "a and ", 40_000, "a }}"), "words"),
        (many("{{ ", "2**", 40_000, "1 }}"), "words"),
        (many("{{ a", "|upper", 40_000, " }}"), "words"),
        (many("{{ a", ".b", 40_000, " }}"), "words"),
        (many("{{ a", "[0]", 40_000, " }}"), "words"),
        (many("{{ a", "()", 40_000, " }}"), "words"),
        (many("{{ ", "-", 20_000, "1 }}"), "words"),
        (many("{{ ", "not ", 60_000, "a }}"), "words"),
        (many("{{ ", "a if b else ", 20_000, "a }}"), "words"),
        (many("{{ ", "(", 50_000, "1") + &many("", ")", 50_000, " }}"), "words"),
        (many("{{ ", "[", 50_000, "1") + &many("", "]", 50_000, " }}"), "words"),
        (many("{{ ", "{1:", 50_000, "1") + &many("", "}", 50_000, " }}"), "words"),
        (many("{{ ", "a(", 50_000, "1") + &many("", ")", 50_000, " }}"), "words"),
        (many("", "{% if a %}", 10_000, ""), "recursion"),
        (many("{{ ", "(", 1_000, "1") + &many("", ")", 1_000, " }}"), "recursion"),
        (many("{% if a %}", "{% elif a %}", 10_000, "{% endif %}"), "elif"),
        (many("{{ a", "b", 1_000, " }}"), "name"),
        (many("{% set ", "(", 50_000, "a") + &many("", ")", 50_000, " = 1 %}"), "words"),
        (many("", "a", 2_000_000, ""), "bytes"),
        // Endless calls.
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".into(), "recursion"),
        ("{% macro f(x=f()) %}{% endmacro %}{{ f() }}".into(), "recursion"),
        ("{% macro f(x) %}{{ x(x) }}{% endmacro %}{{ f(f) }}".into(), "recursion"),
        ("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}".into(), "recursion"),
        ("{{ 'a'|map(*(['map'] * 100000)) }}".into(), "arguments"),
        (
            format!(
                "{{% macro f(x) %}}{{{{ f(x{}) }}}}{{% endmacro %}}{{{{ f([1]) }}}}",
                "|batch(1)".repeat(700)
            ),
            "recursion",
        ),
        ("{% for x in [1] recursive %}{{ loop(loop) }}{% endfor %}".into(), ""),
        ("{% for x in [1] %}{{ loop.cycle() }}{% endfor %}".into(), "cycle"),
        (looped(99_999, "{% set ns.b = ns.b|reverse|batch(1) %}"), deep),
        (nested("{{ b|upper }}"), large),
        (nested("{{ b|trim }}"), large),
        (nested("{{ [1]|select(b) }}"), ""),
        (nested("{{ b is startingwith(c) }}"), large),
        (nested("{{ {'a': b, 'b': c}|dictsort(by='value') }}"), large),
        // Work within one step.
        (large_text("a|trim(a)"), large),
        (large_text("{a: 1}"), large),
        (large_text("'a'.find(a)"), large),
        (large_text("a.replace('', a, 0)"), large),
        (large_text("a is test"), large),
        (large_text("a|upper|length"), large),
        (large_text("a == a ~ ''"), large),
        ("{{ 'a'|map(*(['map'] * 999 + ['x'])) }}".into(), "unknown"),
    ];
    attacks.extend(
        [
            ("range(99999)|join('x' * 100000)|length", large),
            ("('x' * 100000).join(range(99999)|map('string'))|length", large),
            ("('a' * 1000000)|replace('a', 'b' * 100000)", large),
            ("('a' * 1000000).replace('', 'b' * 100000)", large),
            ("('a,' * 50000000).split(',')|length", large),
            ("('\\n' * 50000000).splitlines()|length", large),
            ("('x' * 50000000)|list|length", large),
            ("('\\x01' * 50000000)|tojson|length", ""),
            ("('<' * 50000000)|e|length", ""),
            ("('\\n' * 1000000)|indent('x' * 1000000, blank=true)", large),
            ("'%50000d' % 1 * 100000", large),
            ("'%*d' % (10**12, 1)", large),
            ("'%.*f' % (10**9, 1.5)", large),
            ("'%.999999f' % 1.5", large),
            ("'a'.center(10**12)", large),
            ("'a'.ljust(10**25)", large),
            ("'1'.zfill(10**12)", large),
            ("[1]|batch(10**12, 'x')", large),
            ("[1]|slice(10**12)", large),
            ("('{0}' * 1000).format('x' * 10000000)", large),
            ("('%(a)s' * 1000) % {'a': 'x' * 10000000}", large),
            ("('%65535d' * 10000) % ((1,) * 10000)", large),
            ("'{:>99999}'.format(1) * 10000", large),
            ("range(-9223372036854775807, 9223372036854775807)", large),
            ("('a ' * 50000000)|title|length", large),
            ("('x' * 100000000)|trim ~ ''", large),
            ("[[1]]|tojson(indent=10**12)", "indent"),
            ("range(10**12)", "too many"),
            ("([range(99999)] * 99999)|sum(start=[])|length", ""),
            ("(9**99)**99", "calculate"),
            ("2**127", "calculate"),
            ("-(-2**126*2)", large),
            ("170141183460469231731687303715884105728", large),
            ("('9' * 5000)|int", large),
            ("strftime_now('x' * 1000000)", large),
        ]
        .map(|(expression, reason)| (format!("{{{{ {expression} }}}}"), reason)),
    );
    attacks
}

#[test]
fn templates_that_ask_for_too_much_fail_in_time() {
    let mut wrong = Vec::new();
    for (source, reason) in attacks() {
        let start = Instant::now();
        let rendered =
            Template::new(&source, "", "").and_then(|template| template.render(&[], &[], true));
        let took = start.elapsed();
        let found = match rendered {
            Err(error) => error.to_string(),
            Ok(text) => format!("rendered, {} bytes", text.len()),
        };
        let fails = !found.starts_with("rendered") && found.contains(reason);
        if !fails || took > Duration::from_secs(10) {
            wrong.push(format!("{source:.200}: {found:.200} after {took:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    #[cfg(target_os = "linux")]
    {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: usize = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(peak < 500_000, "{peak} kB");
    }
}

#[test]
fn long_conversations_render() {
    let template = Template::new(source("gemma3"), "<bos>", "<eos>").unwrap();
    let long = message(Role::User, &"A long text, with é. ".repeat(300_000));
    let text = template.render(std::slice::from_ref(&long), &[], true).unwrap();
    assert!(text.contains(long.content.trim()));
    let turns: Vec<_> = (0..4000)
        .map(|i| {
            message(if i % 2 == 0 { Role::User } else { Role::Assistant }, &"Hello. ".repeat(100))
        })
        .collect();
    for name in ["smollm2", "gemma3", "llama3"] {
        let template = Template::new(source(name), "<bos>", "<eos>").unwrap();
        assert!(template.render(&turns, &[], true).unwrap().len() > 2_700_000);
    }
    // A text that grows from turn to turn.
    let gathered = "{% set ns = namespace(a='') %}{% for m in messages %}\
                    {% set ns.a = ns.a + m.role + m.content|trim|replace('o', '0') %}\
                    {% endfor %}{{ ns.a }}";
    let template = Template::new(gathered, "", "").unwrap();
    assert!(template.render(&turns[..300], &[], true).unwrap().len() > 200_000);
}

#[test]
fn one_more_turn_extends_the_text_of_those_before() {
    for name in ["smollm2", "gemma3", "chatml", "llama3", "gemma"] {
        let template = Template::new(source(name), "<bos>", "<eos>").unwrap();
        let mut messages = vec![message(Role::System, "Be brief.")];
        let mut before = String::new();
        for turn in 0..3 {
            messages.push(message(Role::User, &format!("Question {turn}?")));
            let asked = template.render(&messages, &[], true).unwrap();
            assert!(asked.starts_with(&before), "{name}: {asked:?} after {before:?}");
            let answer = format!("Answer {turn}.");
            messages.push(message(Role::Assistant, &answer));
            before = asked + &answer;
            let answered = template.render(&messages, &[], false).unwrap();
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
            "steps",
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
            .and_then(|template| template.render(&[message(Role::User, "hello")], &[], true));
        let error = rendered.expect_err(source).to_string();
        assert!(error.contains(reason), "{source}: {error}");
    }
}

#[test]
fn filters_that_count_work_as_ever() {
    let source = "{{ 'a\nb' | indent(2) }} {{ 'a' | indent(width=1, first=true) }} \
                  {{ '%3d' | format(3) }} {{ '{:>3}'.format(1) }} {{ [1, 2, 3] | batch(2) | length }}";
    let template = Template::new(source, "", "").unwrap();
    assert_eq!(template.render(&[], &[], true).unwrap(), "a\n  b  a   3   1 2");
}

#[test]
fn the_time_is_that_at_which_the_conversation_began() {
    let template = Template::new("{{ strftime_now('%Y-%m-%d %H:%M:%S.%f') }}", "", "").unwrap();
    let first = template.render(&[], &[], true).unwrap();
    assert!(first.starts_with("20"), "{first}");
    std::thread::sleep(std::time::Duration::from_millis(2));
    assert_eq!(template.render(&[], &[], true).unwrap(), first);
}

#[test]
fn arguments_are_a_json_object_and_later_ones_win() {
    let template = || Template::new("{{ a }} {{ b + 1 }}", "", "").unwrap();
    let given = template().arguments(r#"{"a": 1, "b": 0.5}"#).unwrap();
    let given = given.arguments(r#"{"a": "later"}"#).unwrap();
    assert_eq!(given.render(&[], &[], false).unwrap(), "later 1.5");
    assert!(matches!(template().arguments("[1]"), Err(Error::Arguments(_))));
}
