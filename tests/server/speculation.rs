//! Drafts: the same answers in fewer steps.

use std::thread;

use serde_json::{Value, json};

use crate::server::harness::{Server, serve};
use rope_cpu_testing::reader::tiny_reader;

/// Requests with answers that repeat themselves: greedy, with a seed, and by a grammar.
fn bodies() -> Vec<Value> {
    let body = |number: usize| {
        let word = ["rain ", "north ", "inner "][number % 3];
        let mut body = json!({
            "prompt": word.repeat(8 + 5 * number), "n_predict": 60 + 9 * number,
            "temperature": if number < 3 { 0.0 } else { 0.3 }, "seed": number, "ignore_eos": true,
        });
        if number % 4 >= 2 {
            body["ignore_eos"] = false.into();
            body["grammar"] = r#"root ::= ("the rain " | "in the north " | [a-e])+"#.into();
        }
        if number == 7 {
            body["n_probs"] = 3.into();
        }
        body
    };
    (0..8).map(body).collect()
}

/// Returns what an answer contains, without the timings.
fn content(answer: &Value) -> Value {
    json!([
        answer["content"],
        answer["completion_probabilities"],
        answer["tokens_predicted"],
        answer["tokens_cached"],
        answer["stop_type"],
    ])
}

fn together(server: &Server, bodies: &[Value]) -> Vec<Value> {
    thread::scope(|scope| {
        let post = |body: &Value| server.post("/completion", body.clone()).json();
        let running: Vec<_> = bodies.iter().map(|body| scope.spawn(move || post(body))).collect();
        running.into_iter().map(|running| running.join().unwrap()).collect()
    })
}

/// Returns the sum of a field of the answers' timings.
fn sum(answers: &[Value], name: &str) -> u64 {
    answers.iter().filter_map(|answer| answer["timings"][name].as_u64()).sum()
}

fn metric(server: &Server, name: &str) -> u64 {
    let metrics = server.get("/metrics").text;
    let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("llamacpp:{name} ")));
    line.unwrap().parse().unwrap()
}

/// Checks that answers with drafts equal the answers of `alone`, and that some drafts were right. If
/// other programs slow passes down, drafts do not pay for a while: then it asks again.
fn check(server: &Server, bodies: &[Value], alone: &[Value]) {
    let mut all = Vec::new();
    for round in 0..40 {
        if round >= 3 && sum(&all, "draft_n_accepted") > 0 {
            break;
        }
        let answers = together(server, bodies);
        for ((answer, expected), body) in answers.iter().zip(alone).zip(bodies) {
            assert_eq!(content(answer), content(expected), "{body}");
        }
        all.extend(answers);
    }
    let [drafted, accepted] = ["draft_n", "draft_n_accepted"].map(|name| sum(&all, name));
    assert!(accepted > 0 && accepted <= drafted, "{accepted} of {drafted}");
    assert_eq!(metric(server, "spec_decode_num_draft_tokens_total"), drafted);
    assert_eq!(metric(server, "spec_decode_num_accepted_tokens_total"), accepted);
    let steps = metric(server, "spec_decode_num_drafts_total");
    assert!(steps > 0 && steps <= drafted, "{steps} steps, {drafted} drafts");
}

const OPTIONS: [&str; 5] = ["-c", "1024", "-ub", "64", "--metrics"];

#[test]
fn drafts_do_not_change_answers() {
    let bodies = bodies();
    let alone = serve(&[&OPTIONS[..], &["-np", "1"]].concat());
    let alone: Vec<_> =
        bodies.iter().map(|body| alone.post("/completion", body.clone()).json()).collect();
    assert_eq!(sum(&alone, "draft_n"), 0);
    for slots in ["1", "3", "8"] {
        let drafts = ["-np", slots, "--spec-type", "ngram-simple"];
        check(&serve(&[&OPTIONS[..], &drafts].concat()), &bodies, &alone);
    }
    // Short prompts at the same time, in a draft model that reads 64 tokens at a time.
    let (model, same) = (tiny_reader(7, true), tiny_reader(7, true));
    let draft = ["-np", "3", "-md", same.path().to_str().unwrap()];
    let server = Server::start(model.path(), &[&OPTIONS[..], &draft].concat());
    check(&server, &bodies, &alone);
}

#[test]
fn a_request_can_limit_drafts() {
    let server = serve(&["-c", "512", "-np", "1", "--spec-type", "ngram-simple"]);
    let mut body =
        json!({ "prompt": "rain ".repeat(20), "n_predict": 90, "temperature": 0, "seed": 1 });
    body["speculative.n_max"] = 0.into();
    assert_eq!(server.post("/completion", body.clone()).json()["timings"]["draft_n"], Value::Null);
    body["speculative.n_max"] = 99.into();
    server.post("/completion", body).refused(400, &["\"speculative.n_max\"", "0 to 15", "99"]);
}

#[test]
fn a_share_of_a_long_prompt_is_computed() {
    let draft = tiny_reader(8, true);
    let draft = draft.path().to_str().unwrap();
    let server = serve(&["-c", "8192", "-np", "2", "-md", draft, "--prefill-share", "0.1"]);
    let words = (0..700).map(|i| ["rain ", "north ", "inner ", "the "][i * i % 7 % 4]);
    let body = json!({ "prompt": words.collect::<String>(), "n_predict": 4, "temperature": 0 });
    let [first, again] = [(), ()].map(|()| server.post("/completion", body.clone()).json());
    let of = |answer: &Value, name: &str| answer["timings"][name].as_u64().unwrap();
    let (computed, omitted) = (of(&first, "prompt_n"), of(&first, "omitted_n"));
    assert!(omitted > computed && computed >= 640, "{computed}, {omitted}");
    // The same prompt is reused only up to its first gap.
    let reused = of(&again, "cache_n");
    assert!((128..computed).contains(&reused), "{reused} of {computed}");
    assert_eq!(reused + of(&again, "prompt_n") + of(&again, "omitted_n"), computed + omitted);
    let short = server.post("/completion", json!({ "prompt": "rain", "n_predict": 4 })).json();
    assert_eq!(short["timings"]["omitted_n"], Value::Null);
}
