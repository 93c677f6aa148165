//! Many requests at a time.

use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::server::harness::{PROMPT, Server, serve};

/// Returns a prompt of `words` words. Prompts with different numbers differ after the first letter.
fn prompt(number: usize, words: usize) -> String {
    let letter = |index: usize| char::from(b'a' + (index * (number + 3) % 26) as u8);
    (0..words).map(|word| format!("{}{} ", letter(word + number), letter(3 * word))).collect()
}

fn content(server: &Server, body: &Value) -> String {
    server.post("/completion", body.clone()).json()["content"].as_str().unwrap().into()
}

/// Sends all requests at the same time.
fn together(server: &Server, bodies: &[Value]) -> Vec<String> {
    thread::scope(|scope| {
        let running: Vec<_> =
            bodies.iter().map(|body| scope.spawn(|| content(server, body))).collect();
        running.into_iter().map(|running| running.join().unwrap()).collect()
    })
}

/// Waits until `count` requests have no slot.
fn wait_for_deferred(server: &Server, count: usize) {
    let line = format!("llamacpp:requests_deferred {count}\n");
    server.wait_until(|server| server.get("/metrics").text.contains(&line));
}

/// Requests with prompts of different lengths and different settings.
fn bodies() -> Vec<Value> {
    let body = |number: usize| {
        json!({
            "prompt": prompt(number, 5 + 37 * number), "n_predict": 30 + 11 * number,
            "temperature": number as f64 / 4.0, "seed": number, "ignore_eos": true,
        })
    };
    (0..8).map(body).collect()
}

#[test]
fn answers_are_the_same_alone_and_under_load() {
    let bodies = bodies();
    let options = ["-c", "1024", "-ub", "64"];
    let alone = serve(&[&options[..], &["-np", "1"]].concat());
    let alone: Vec<_> = bodies.iter().map(|body| content(&alone, body)).collect();
    for slots in ["3", "8"] {
        let server = serve(&[&options[..], &["-np", slots]].concat());
        for _ in 0..2 {
            assert_eq!(together(&server, &bodies), alone, "{slots} slots");
        }
    }
}

#[test]
fn a_shared_beginning_is_read_once() {
    let server = serve(&["-c", "1024", "-np", "4"]);
    let beginning = prompt(1, 150);
    let answer = |end: &str| {
        let body = json!({ "prompt": format!("{beginning}{end}"), "n_predict": 4 });
        server.post("/completion", body).json()
    };
    let first = answer("first");
    assert_eq!(first["timings"]["cache_n"], 0);
    let shared = first["tokens_evaluated"].as_u64().unwrap() - "first".len() as u64;
    let cached = |answer: &Value| answer["timings"]["cache_n"].as_u64().unwrap();
    assert!(cached(&answer("second")) >= shared - 1);
    // At the same time in several slots, and when they have come to another conversation.
    thread::scope(|scope| {
        for end in ["third", "fourth", "fifth", "sixth"] {
            scope.spawn(move || assert!(cached(&answer(end)) >= shared - 1));
        }
    });
    for number in 2..8 {
        content(&server, &json!({ "prompt": prompt(number, 20), "n_predict": 1 }));
    }
    assert!(cached(&answer("seventh")) >= shared - 1);
    let body = json!({ "prompt": format!("{beginning}x"), "n_predict": 1, "cache_prompt": false });
    assert_eq!(cached(&server.post("/completion", body).json()), 0);
}

#[test]
fn prompts_with_a_shared_beginning_wait_for_the_first() {
    let server = serve(&["-c", "4096", "-np", "4", "-ub", "32"]);
    let body = json!({ "prompt": prompt(1, 500), "n": 4, "max_tokens": 2 });
    let answers = server.post("/completion", body).json();
    let cached = |answer: &Value| answer["timings"]["cache_n"].as_u64().unwrap();
    let cached: Vec<_> = answers.as_array().unwrap().iter().map(cached).collect();
    assert!(cached.iter().sum::<u64>() >= 3 * 1400, "{cached:?}");
}

#[test]
fn a_long_prompt_does_not_stall_an_answer() {
    let server = serve(&["-c", "4096", "-np", "2", "-ub", "64", "--context-shift"]);
    let mut answer = server.stream("/completion", json!({ "prompt": PROMPT, "n_predict": -1 }));
    let generated = || server.slot(0)["timings"]["predicted_n"].as_u64().unwrap();
    answer.next().unwrap();
    let reading = json!({
        "prompt": prompt(1, 1200), "n_predict": 1, "return_progress": true, "id_slot": 1,
    });
    thread::scope(|scope| {
        // Its events are read, so that the server does not wait for the client.
        scope.spawn(|| answer.by_ref().count());
        let before = generated();
        let events = server.stream("/completion", reading);
        let steps = events.filter(|event| !event["prompt_progress"].is_null()).count() as u64;
        let meanwhile = generated() - before;
        // 3601 tokens, at most 64 in a step.
        assert!(steps > 56, "{steps}");
        // Every step generates a token.
        assert!(meanwhile + 1 >= steps - 1, "{meanwhile} tokens during {steps} steps");
        server.signal(Signal::SIGKILL);
    });
}

#[test]
fn a_client_that_goes_away_frees_its_slot() {
    let server = serve(&["-c", "512", "-np", "1", "--context-shift"]);
    let mut answer = server.stream("/completion", json!({ "prompt": PROMPT, "n_predict": -1 }));
    answer.next().unwrap();
    assert_eq!(server.slot(0)["is_processing"], true);
    drop(answer);
    server.wait_until_idle();
    content(&server, &json!({ "prompt": "on", "n_predict": 2 }));
}

#[test]
fn answers_go_on_in_a_context_that_shifts() {
    let server = serve(&["-c", "512", "-np", "1", "--context-shift"]);
    let body = json!({ "prompt": PROMPT, "n_predict": 1100, "ignore_eos": true });
    let answer = server.post("/completion", body.clone()).json();
    assert_eq!(answer["timings"]["predicted_n"], 1100);
    let server = serve(&["-c", "512", "-np", "1"]);
    let answer = server.post("/completion", body).json();
    let timings = &answer["timings"];
    let total = ["cache_n", "prompt_n", "predicted_n"].map(|key| timings[key].as_u64().unwrap());
    // The last token is not read any more.
    assert_eq!(total.iter().sum::<u64>(), 513, "{timings}");
}

#[test]
fn a_full_queue_is_refused_until_there_is_room() {
    let options = ["-c", "512", "-np", "1", "--max-queue", "2", "--context-shift", "--metrics"];
    let server = serve(&options);
    let mut running = server.stream("/completion", json!({ "prompt": PROMPT, "n_predict": -1 }));
    running.next().unwrap();
    // A request with three prompts is one request.
    let body = json!({ "prompt": ["on", "in", "at"], "n_predict": 2 });
    thread::scope(|scope| {
        let send = || server.post("/completion", body.clone());
        let waiting: Vec<_> = (0..2).map(|_| scope.spawn(send)).collect();
        wait_for_deferred(&server, 2);
        let reply = send();
        reply.refused(429, &["2 requests wait"]);
        assert_eq!(reply.header("retry-after"), Some("1"));
        drop(running);
        for waiting in waiting {
            let answers = waiting.join().unwrap().json();
            let answers = answers.as_array().unwrap();
            assert_eq!(answers.len(), 3);
            assert!(answers.iter().all(|answer| answer["content"] != ""), "{answers:?}");
        }
    });
    content(&server, &json!({ "prompt": "on", "n_predict": 2 }));
}

#[test]
fn requests_are_answered_in_the_order_in_which_they_came() {
    let server = serve(&["-c", "512", "-np", "1", "--context-shift", "--metrics"]);
    let mut running = server.stream("/completion", json!({ "prompt": PROMPT, "n_predict": -1 }));
    running.next().unwrap();
    thread::scope(|scope| {
        let (begin, begun) = std::sync::mpsc::channel();
        for (number, words) in [(0, 100), (1, 1), (2, 50)] {
            let (begin, server) = (begin.clone(), &server);
            scope.spawn(move || {
                let body = json!({ "prompt": prompt(number, words), "n_predict": -1 });
                let mut answer = server.stream("/completion", body);
                answer.next().unwrap();
                begin.send((number, answer)).unwrap();
            });
            wait_for_deferred(server, number + 1);
        }
        drop(running);
        // Each answer has the only slot until its client goes away.
        for expected in 0..3 {
            let (number, _answer) = begun.recv().unwrap();
            assert_eq!(number, expected);
        }
    });
}
