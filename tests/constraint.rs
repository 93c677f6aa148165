//! Constrained answers, with real vocabularies and a real model.

use std::{ops::ControlFlow, thread, time::Duration};

use rope_cpu::{
    Token,
    batch::{Answered, Request},
    constraint::{Constraint, Error, Grammar, Position, Vocabulary, vocabulary},
    generate::{End, Limits, Stops},
    gguf::{File, Gguf},
    json,
    kv_cache::CacheType,
    model::Model,
    runtime::{self, Runtime},
    sample::{Settings, temperature},
    tokenizer::{Ends, Kind, Special, Tokenizer},
};
use rope_cpu_testing::{models::fetched, time::processor_time};
use serde_json::Value;

/// Calls `test` with the tokenizer and the vocabulary of a file.
fn with_vocabulary(name: &str, script: &str, test: impl FnOnce(&Tokenizer, &Vocabulary)) {
    let Some(path) = fetched(name, script) else { return };
    let file = File::open(&path).unwrap();
    let gguf = Gguf::parse(file.bytes(), &[]).unwrap();
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
    let vocabulary = vocabulary(&tokenizer).unwrap();
    test(&tokenizer, &vocabulary);
}

fn with_smollm2(test: impl FnOnce(&Tokenizer, &Vocabulary)) {
    with_vocabulary("SmolLM2-135M-Instruct.Q4_1.gguf", "fetch-models", test);
}

/// Returns the tokens that a constraint permits.
fn permitted(constraint: &mut Constraint, tokenizer: &Tokenizer) -> Vec<Token> {
    let mut logits = vec![0.0; tokenizer.len()];
    constraint.restrict(&mut logits).unwrap();
    (0..).zip(logits).filter(|(_, logit)| *logit == 0.0).map(|(token, _)| token).collect()
}

/// A runtime of SmolLM2 that answers questions.
struct Answering {
    runtime: Runtime,
    vocabulary: Vocabulary,
}

impl Answering {
    fn new() -> Option<Self> {
        let model =
            Model::open(&fetched("SmolLM2-135M-Instruct.Q4_1.gguf", "fetch-models")?).unwrap();
        let settings = runtime::Settings {
            context: Some(1024.into()),
            keys: CacheType::F32,
            values: CacheType::F32,
            ..runtime::Settings::default()
        };
        let vocabulary = vocabulary(model.tokenizer().unwrap()).unwrap();
        let runtime = Runtime::new(model, &settings).unwrap();
        Some(Answering { runtime, vocabulary })
    }

    fn answer(&mut self, question: &str, grammar: &Grammar, limits: Limits) -> Answered {
        let constraint = Constraint::new(&self.vocabulary, grammar);
        let constraint = constraint.unwrap_or_else(|e| panic!("{grammar:?}: {e}"));
        let limits = Limits { tokens_max: Some(250), constraint: Some(constraint), ..limits };
        let prompt = format!("<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n");
        let tokenizer = self.runtime.model().tokenizer().unwrap();
        let prompt = tokenizer.encode(&prompt, Special::Parse, Ends::Omit);
        let settings = Settings { seed: Some(1), ..Settings::default() };
        let values = settings.values.clone().with(&temperature::TEMPERATURE.parameter, 0.0);
        let sampling = Settings { values, ..settings };
        let request = Request { sampling, limits, ..Request::new(prompt) };
        self.runtime.answer(request, &mut |_| ControlFlow::Continue(())).unwrap()
    }
}

#[test]
fn answers_follow_json_schemas() {
    let Some(mut answering) = Answering::new() else { return };
    let person = r#""type": "object", "properties": {"name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150}},
        "required": ["name", "age"], "additionalProperties": false"#;
    type IsValid = fn(&Value) -> bool;
    let schemas: [(String, IsValid); 11] = [
        (format!("{{{person}}}"), |v| v["name"].is_string() && v["age"].as_u64() <= Some(150)),
        (format!(r#"{{"type": "array", "minItems": 2, "maxItems": 3, "items": {{{person}}}}}"#), |v| {
            let people = v.as_array().unwrap();
            (2..=3).contains(&people.len()) && people.iter().all(|person| person["age"].is_u64())
        }),
        (r#"{"enum": ["red", "green", null, 7]}"#.into(), |v| {
            [Value::from("red"), "green".into(), Value::Null, 7.into()].contains(v)
        }),
        (r#"{"type": "boolean"}"#.into(), Value::is_boolean),
        (r#"{"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$"}"#.into(), |v| {
            v.as_str().unwrap().len() == 6
        }),
        (r#"{"type": "object", "propertyNames": {"type": "string"}, "maxProperties": 1}"#.into(), |v| {
            v.as_object().unwrap().len() <= 1
        }),
        (r#"{"type": "string", "format": "date"}"#.into(), |v| v.as_str().unwrap().len() == 10),
        (r#"{"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 10, "maximum": 20}]}"#.into(), |v| {
            v.is_null() || (10..=20).contains(&v.as_i64().unwrap())
        }),
        (
            r##"{"$ref": "#/$defs/list", "$defs": {"list": {"type": "object", "properties": {
                "value": {"type": "integer", "maximum": 9}, "next": {"anyOf": [{"type": "null"}]}},
                "required": ["value", "next"], "additionalProperties": false}}}"##
                .into(),
            |v| v["value"].is_i64() && v.get("next").is_some(),
        ),
        (
            r#"{"type": "object", "properties": {"kind": {"const": "point"}, "at": {"type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "integer"}], "items": false,
                "minItems": 2}}, "required": ["kind", "at"], "additionalProperties": false}"#
                .into(),
            |v| v["kind"] == "point" && v["at"].as_array().unwrap().len() == 2,
        ),
        (
            r#"{"type": "object", "patternProperties": {"^k[0-9]$": {"type": "boolean"}},
                "additionalProperties": false, "minProperties": 1, "maxProperties": 2}"#
                .into(),
            |v| v.as_object().unwrap().iter().all(|(key, value)| key.len() == 2 && value.is_boolean()),
        ),
    ];
    for (schema, is_valid) in schemas {
        let grammar = Grammar::JsonSchema(schema.clone());
        let answer = answering.answer("Describe a person as JSON.", &grammar, Limits::default());
        let value = json::parse(&answer.text);
        let value = value.unwrap_or_else(|e| panic!("{schema}: {}: {e}", answer.text));
        assert!(is_valid(&value), "{schema}: {}", answer.text);
        assert!([End::Complete, End::Model].contains(&answer.outcome.end), "{schema}: {answer:?}");
    }
}

#[test]
fn answers_follow_regular_expressions_and_grammars() {
    let Some(mut answering) = Answering::new() else { return };
    let mut answer =
        |grammar: &Grammar, limits| answering.answer("What is 2 + 2?", grammar, limits);
    let regex = Grammar::Regex(r"The answer is \d{1,2}\.".into());
    let answered = answer(&regex, Limits::default());
    let number = answered.text.strip_prefix("The answer is ").unwrap().strip_suffix('.').unwrap();
    assert!(number.parse::<u8>().is_ok(), "{}", answered.text);
    assert_eq!(answered.outcome.end, End::Complete);
    for (grammar, expected) in [
        (Grammar::from_text(r#"root ::= "yes" | "no""#), &["yes", "no"][..]),
        (Grammar::from_text("%llguidance {}\nstart: \"A\" | \"B\"\n"), &["A", "B"]),
        // What may be followed by nothing else ends the answer even if the end is ignored.
        (Grammar::from_text("root ::= item+\nitem ::= \"4\"{3}"), &["444"]),
    ] {
        let answered = answer(&grammar, Limits::default());
        let starts = expected.iter().any(|text| answered.text.starts_with(text));
        assert!(starts, "{grammar:?}: {}", answered.text);
    }
    let limits = Limits { ignore_end: true, ..Limits::default() };
    let answered = answer(&Grammar::from_text(r#"root ::= "ab" "c"?"#), limits);
    assert_eq!((answered.text.as_str(), answered.outcome.end), ("abc", End::Complete));
    // Each answer begins with the grammar's beginning, and the limits are not changed.
    let limits = Limits { stops: Stops::new(["2"]), ..Limits::default() };
    let answered = answer(&Grammar::from_text("root ::= \"1\" \"2\" \"3\""), limits);
    assert_eq!((answered.text.as_str(), answered.outcome.end), ("1", End::Stop("2".into())));
}

#[test]
fn only_tokens_of_the_text_and_of_its_end_are_permitted() {
    with_smollm2(|tokenizer, vocabulary| {
        let mut constraint =
            Constraint::new(vocabulary, &Grammar::Gbnf(r#"root ::= "ab" [c-d]*"#.into())).unwrap();
        let texts = |tokens: &[Token]| -> Vec<String> {
            let piece = |token| String::from_utf8_lossy(&tokenizer.piece(token, true)).into_owned();
            tokens.iter().map(|token| piece(*token)).collect()
        };
        let first = texts(&permitted(&mut constraint, tokenizer));
        assert!(first.contains(&"a".into()) && first.contains(&"ab".into()), "{first:?}");
        assert!(first.iter().all(|text| "ab".starts_with(text) || text.starts_with("ab")));
        assert!(!constraint.may_end().unwrap());
        let mut other = constraint.clone();
        constraint.accept(tokenizer.token("ab").unwrap()).unwrap();
        assert!(constraint.may_end().unwrap() && !constraint.is_complete());
        let second = permitted(&mut constraint, tokenizer);
        for token in second {
            let text = texts(&[token]).concat();
            let ends = tokenizer.is_end_of_generation(token);
            assert!(ends || text.chars().all(|c| "cd".contains(c)), "{text:?}");
        }
        // A clone is independent.
        assert_eq!(texts(&permitted(&mut other, tokenizer)), first);
        let error = other.accept(tokenizer.token("c").unwrap()).unwrap_err();
        assert!(matches!(&error, Error::Step(_)), "{error}");
    });
}

#[test]
fn characters_may_be_spelled_by_tokens_of_single_bytes() {
    with_vocabulary(
        "vocab/ggml-vocab-llama-spm.gguf",
        "fetch-vocabularies",
        |tokenizer, vocabulary| {
            let grammar = Grammar::Gbnf("root ::= [🦀-🦙] \" x\"".into());
            let mut constraint = Constraint::new(vocabulary, &grammar).unwrap();
            for byte in "🦙".bytes() {
                let permitted = permitted(&mut constraint, tokenizer);
                let token = tokenizer.token(&format!("<0x{byte:02X}>")).unwrap();
                assert!(permitted.contains(&token), "{byte:x}");
                assert!(permitted.iter().all(|token| tokenizer.kind(*token) != Kind::Control));
                constraint.accept(token).unwrap();
            }
            let space = tokenizer.token("▁x").unwrap();
            assert!(permitted(&mut constraint, tokenizer).contains(&space));
            constraint.accept(space).unwrap();
            assert!(constraint.is_complete());
        },
    );
}

#[test]
fn control_tokens_are_permitted_by_name_only() {
    with_smollm2(|tokenizer, vocabulary| {
        let end = tokenizer.token("<|im_end|>").unwrap();
        let start = tokenizer.token("<|im_start|>").unwrap();
        for (text, expected) in [
            ("root ::= <|im_start|> \"a\"", true),
            (&*format!("root ::= <[{start}]> \"a\""), true),
            ("root ::= !<|im_end|> \"a\"", true),
            ("root ::= \"<|im_start|>\"", false),
            ("root ::= . \"a\"", false),
            ("%llguidance {}\nstart: <|im_start|> \"a\"", true),
        ] {
            let mut constraint = Constraint::new(vocabulary, &Grammar::from_text(text)).unwrap();
            let first = permitted(&mut constraint, tokenizer);
            assert_eq!(first.contains(&start), expected, "{text}");
            assert!(!first.contains(&end), "{text}");
        }
        let unknown = Grammar::Gbnf("root ::= \"a\"\n  <no-such>".replace('\n', ""));
        let error = Constraint::new(vocabulary, &unknown).unwrap_err().to_string();
        assert_eq!(error, "line 1, column 15: the vocabulary has no token <no-such>");
    });
}

#[test]
fn what_is_read_by_characters_permits_tokens_of_many() {
    with_smollm2(|tokenizer, vocabulary| {
        let grammar = "root ::= x \".\"\nx ::= [^;] y\ny ::= x | \"\"";
        let mut constraint = Constraint::new(vocabulary, &Grammar::Gbnf(grammar.into())).unwrap();
        let permitted = permitted(&mut constraint, tokenizer);
        assert!(permitted.len() > tokenizer.len() * 9 / 10, "{} tokens", permitted.len());
        constraint.accept(tokenizer.token("Ġcharacters").unwrap()).unwrap();
        assert!(!constraint.may_end().unwrap());
    });
}

/// Returns the error of a grammar.
fn refused(vocabulary: &Vocabulary, grammar: Grammar) -> (Option<Position>, String) {
    loop {
        return match Constraint::new(vocabulary, &grammar) {
            Ok(_) => panic!("{:.200}", format!("{grammar:?}")),
            Err(Error::Invalid { position, message }) => (position, message),
            // By other tests, on a machine with much else to do.
            Err(Error::Limit(message)) if message.contains("others are being compiled") => {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
            Err(Error::Limit(message)) => (None, message),
            Err(error) => panic!("{error}"),
        };
    }
}

#[test]
fn what_a_schema_needs_and_is_not_supported_is_an_error_with_its_place() {
    with_smollm2(|_, vocabulary| {
        for (schema, place, part) in [
            (r#"{"not": {}}"#, Some("/not"), "the keyword `not` is not supported"),
            (
                r#"{"properties": {"a/b": {"items": {"uniqueItems": true}}}}"#,
                Some("/properties/a~1b/items/uniqueItems"),
                "the keyword `uniqueItems` is not supported",
            ),
            (r#"{"anyOf": [{}, {"requird": []}]}"#, Some("/anyOf/1/requird"), "`requird`"),
            (
                r#"{"items": {"type": "strin"}}"#,
                Some("/items/type"),
                "no type \"strin\": choose from",
            ),
            (r#"{"type": ["string", 5]}"#, Some("/type"), "no type 5"),
            (r#"{"type": "string", "format": "no-such"}"#, Some("/format"), "no-such"),
            (
                r#"{"properties": {"a": {"minLength": 1}, "b~": {"type": "string", "pattern": "a(b"}}}"#,
                Some("/properties/b~0/pattern"),
                "unclosed group",
            ),
            (
                r#"{"allOf": [{}, {"type": "integer", "minimum": 5, "maximum": 4}], "title": "a"}"#,
                Some("/allOf/1/minimum"),
                "minimum",
            ),
            (
                r##"{"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"items": 5}}}"##,
                Some("/$defs/a/items"),
                "schema",
            ),
            (
                r#"{"additionalProperties": false, "required": ["a"], "properties": {"a": {"const": 1}},
                    "minProperties": "x"}"#,
                Some("/minProperties"),
                "minProperties",
            ),
            (
                r#"{"items": [{"properties": 5}, {"properties": 5}]}"#,
                Some("/items/1/properties"),
                "object",
            ),
            (r##"{"$ref": "#/$defs/none"}"##, Some("/$ref"), "none"),
            (r#"{"$ref": "https://example.com/schema"}"#, Some("/$ref"), "example.com"),
            (r#"{"oneOf": [{"minimum": 1}, {"maximum": 2}]}"#, Some("/oneOf"), "use anyOf"),
            ("[]", Some(""), "schema"),
            ("false", Some(""), "false"),
        ] {
            let (position, message) = refused(vocabulary, Grammar::JsonSchema(schema.into()));
            assert_eq!(position, place.map(|p| Position::Pointer(p.into())), "{schema}: {message}");
            assert!(message.contains(part), "{schema}: {message}");
        }
        let (position, message) = refused(vocabulary, Grammar::JsonSchema("{\n  \"a\": }".into()));
        assert_eq!(position, Some(Position::Character { line: 2, column: 8 }));
        assert_eq!(message, "not JSON: expected value");
    });
}

#[test]
fn errors_of_other_grammars_have_a_place() {
    with_smollm2(|_, vocabulary| {
        let at = |line, column| Some(Position::Character { line, column });
        for (grammar, position, part) in [
            (Grammar::Regex("a(b".into()), at(1, 2), "unclosed group"),
            (Grammar::Regex("ab\\".into()), at(1, 3), "incomplete escape sequence"),
            (Grammar::Regex(r"\bword".into()), None, "lookarounds not supported"),
            (
                Grammar::Lark("start: a\n  b: )".into()),
                at(2, 6),
                "expecting rule, token or statement",
            ),
            (Grammar::Lark("start: a\n".into()), at(1, 8), "\"a\""),
            (Grammar::Lark("start: \"a\n".into()), at(1, 10), "lexer error"),
            (Grammar::Gbnf("root ::= x".into()), at(1, 10), "there is no rule `x`"),
            (Grammar::Gbnf("root ::= root".into()), None, "no answer can begin"),
            (Grammar::Lark("start: x\nx: x \"a\"".into()), None, "no answer can begin"),
        ] {
            let (found, message) = refused(vocabulary, grammar.clone());
            assert_eq!(found, position, "{grammar:?}: {message}");
            assert!(message.contains(part), "{grammar:?}: {message}");
        }
    });
}

#[test]
fn hostile_grammars_are_errors() {
    with_smollm2(|_, vocabulary| {
        let nested = |open: &str, close: &str, n| open.repeat(n) + "{}" + &close.repeat(n);
        let chain = |n: usize, rule: fn(usize) -> String| (0..n).map(rule).collect::<String>();
        let refs = chain(4000, |i| format!(r##""d{i}":{{"$ref":"#/$defs/d{}"}},"##, i + 1));
        let grammars = [
            Grammar::JsonSchema(" ".repeat(300_000)),
            Grammar::JsonSchema(nested(r#"{"not":"#, "}", 50_000)),
            Grammar::JsonSchema(nested(r#"{"items":"#, "}", 20_000)),
            Grammar::JsonSchema(format!(
                r##"{{"$defs":{{{refs}"d4000":{{"type":"x"}}}},"$ref":"#/$defs/d0"}}"##
            )),
            Grammar::Regex("(".repeat(100_000)),
            Grammar::Lark(format!("start: {}", "(".repeat(100_000))),
            Grammar::Lark(
                "start: X\n".to_string() + &chain(20_000, |i| format!("X{i}: X{}\n", i + 1)),
            ),
            Grammar::Gbnf("root ::= (".repeat(20_000)),
        ];
        for grammar in grammars {
            refused(vocabulary, grammar);
        }
        // What is only long is permitted.
        for grammar in [
            Grammar::Lark(chain(10_000, |i| match i {
                0 => "start: r1\n".into(),
                9_999 => "r9999: \"a\"\n".into(),
                i => format!("r{i}: r{}\n", i + 1),
            })),
            Grammar::Gbnf(chain(10_000, |i| match i {
                0 => "root ::= r1\n".into(),
                9_999 => "r9999 ::= \"a\"\n".into(),
                i => format!("r{i} ::= r{}\n", i + 1),
            })),
            Grammar::Regex("(a{1000}|b{999}){1000}{1000}{1000}{1000}{1000}".into()),
            Grammar::Gbnf("root ::= x{1000} | \"b\" root\nx ::= \"a\"{1000}".into()),
        ] {
            Constraint::new(vocabulary, &grammar).unwrap();
        }
    });
}

#[test]
fn a_step_of_a_hostile_grammar_is_short_or_an_error() {
    with_smollm2(|tokenizer, vocabulary| {
        let many = |n: usize, part: &dyn Fn(usize) -> String, between: &str| {
            (0..n).map(part).collect::<Vec<_>>().join(between)
        };
        let grammars = [
            // Each text has many derivations: a step takes minutes.
            Grammar::Lark("start: s\ns: s s | s s s | /[a-z ]/".into()),
            // Automata with many states.
            Grammar::Regex("(.*[aeiou].{100}){40}".into()),
            Grammar::Lark(format!(
                "start: X\nX: {}",
                many(30, &|i| format!("~/.*e.{{{i}}}t.*/"), " & ")
            )),
            // Many terminals at a time.
            Grammar::Lark(format!(
                "start: ({})*\n{}",
                many(1500, &|i| format!("x{i}"), "|"),
                many(1500, &|i| format!("x{i}: X{i} x{i} |\nX{i}: /[a-z ]{{0,{i}}}[0-9]/\n"), ""),
            )),
        ];
        let mut slow = 0;
        for grammar in &grammars {
            let mut constraint = match Constraint::new(vocabulary, grammar) {
                Ok(constraint) => constraint,
                Err(e) => {
                    slow += usize::from(e.to_string().contains("take too long to find"));
                    continue;
                }
            };
            for step in 0..20 {
                let mut logits = vec![0.0; tokenizer.len()];
                let began = processor_time();
                let result = constraint.restrict(&mut logits);
                let permitted = (0..).zip(&logits).filter(|(_, logit)| **logit == 0.0);
                let permitted: Vec<Token> = permitted.map(|(token, _)| token).collect();
                let token = permitted.get(step * 7919 % permitted.len().max(1)).copied();
                let token = token.filter(|token| !tokenizer.is_end_of_generation(*token));
                let result = result.and_then(|()| token.map_or(Ok(()), |t| constraint.accept(t)));
                // The limit is 1 s: the rest is for a slow machine.
                assert!(processor_time() - began < Duration::from_secs(10), "{grammar:?}");
                if let Err(e) = result {
                    slow += usize::from(e.to_string().contains("take too long to find"));
                    break;
                }
            }
        }
        assert!(slow > 0);
    });
}

/// Returns the number of tokens after which a step takes too long.
fn last_step(mut constraint: Constraint, token: Token, tokens: usize) -> usize {
    for step in 0.. {
        let mut logits = vec![0.0; tokens];
        if let Err(e) = constraint.restrict(&mut logits).and_then(|()| constraint.accept(token)) {
            assert!(e.to_string().contains("take too long to find"), "{e}");
            return step;
        }
    }
    unreachable!()
}

#[test]
fn a_step_has_the_time_that_is_set() {
    with_smollm2(|tokenizer, vocabulary| {
        let grammar = Grammar::Gbnf("root ::= s\ns ::= s s s | s s | \"a\" | \"\"".into());
        let constraint = Constraint::new(vocabulary, &grammar).unwrap();
        let last =
            |constraint| last_step(constraint, tokenizer.token("a").unwrap(), tokenizer.len());
        // Counted in tokens, since each takes more time than those before: a busy machine changes little.
        let tokens = last(constraint.clone().with_step_max(Duration::ZERO));
        let more_tokens = last(constraint);
        assert!(tokens < more_tokens, "{tokens} and {more_tokens}");
    });
}

#[test]
fn constraints_can_be_sent_to_other_threads() {
    fn check<T: Send>() {}
    check::<Constraint>();
    check::<Vocabulary>();
    fn shared<T: Sync>() {}
    shared::<Vocabulary>();
}
