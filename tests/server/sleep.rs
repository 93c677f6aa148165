//! Requests that arrive while a model goes to sleep.

use std::{thread, time::Duration};

use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg32;
use serde_json::{Value, json};

use crate::server::harness::{PROMPT, Server};
use rope_cpu_testing::reader::tiny_reader;

const CLIENTS: u64 = 4;
const REQUESTS: u32 = 30;

/// A request that uses the model or its tokenizer, and the field of the answer that is always the same.
fn requests() -> [(&'static str, Value, &'static str); 5] {
    let messages = json!([{ "role": "user", "content": PROMPT }]);
    [
        ("/tokenize", json!({ "content": PROMPT }), "tokens"),
        ("/detokenize", json!({ "tokens": [30, 31, 32] }), "content"),
        ("/apply-template", json!({ "messages": messages }), "prompt"),
        (
            "/v1/messages/count_tokens",
            json!({ "model": "a", "messages": messages }),
            "input_tokens",
        ),
        ("/completion", json!({ "prompt": PROMPT, "n_predict": 4, "temperature": 0 }), "content"),
    ]
}

/// CVE-2026-43631: llama-server frees a model that goes to sleep while requests use its tokenizer.
#[test]
fn cve_2026_43631() {
    let model = tiny_reader(7, true);
    let options = ["-c", "512", "--chat-template", "chatml", "--sleep-idle-seconds", "0"];
    let server = &Server::start(model.path(), &options);
    let ask = move |index: usize| -> Value {
        let (path, body, field) = requests()[index].clone();
        server.post(path, body).json()[field].take()
    };
    let expected: &Vec<_> = &(0..requests().len()).map(ask).collect();
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let mut random = Pcg32::seed_from_u64(client);
            scope.spawn(move || {
                for _ in 0..REQUESTS {
                    let index = random.next_u32() as usize % expected.len();
                    assert_eq!(ask(index), expected[index]);
                    thread::sleep(Duration::from_micros(u64::from(random.next_u32() % 40_000)));
                }
            });
        }
    });
    let slept = server.stderr().matches("closing").count();
    assert!(slept > 5, "{}", server.stderr());
}
