//! Answers in the forms of llama-server and OpenAI.

use serde_json::{Value, json};

use crate::server::harness::{Events, PROMPT, Server, serve};
use rope_cpu_testing::reader::tiny_infilling;

/// A template with the texts of the messages only, in the vocabulary of the tiny model.
const TEMPLATE: &str = "{% for m in messages %}{{ m.content }}, {% endfor %}";

/// Returns the text of a stream of completions.
fn text(events: Events, part: impl Fn(&Value) -> &Value) -> String {
    events.map(|event| part(&event).as_str().unwrap_or_default().to_string()).collect()
}

#[test]
fn a_server_is_healthy_and_ready() {
    let server = serve(&["-c", "256", "-np", "2"]);
    for path in ["/health", "/v1/health", "/livez", "/readyz"] {
        assert_eq!(server.get(path).json(), json!({ "status": "ok" }), "{path}");
    }
    let properties = server.get("/props").json();
    assert_eq!(properties["total_slots"], 2);
    assert_eq!(properties["default_generation_settings"]["n_ctx"], 256);
    let models = server.get("/v1/models").json();
    assert_eq!(models["data"][0]["meta"]["n_ctx"], 256);
}

#[test]
fn a_completion_is_the_same_in_every_form() {
    let server = serve(&["-c", "256", "-np", "2"]);
    let body = json!({ "prompt": PROMPT, "n_predict": 40, "temperature": 1, "seed": 3 });
    let whole = server.post("/completion", body.clone()).json();
    let content = whole["content"].as_str().unwrap();
    assert!(content.len() >= 40, "{content}");
    assert_eq!(whole["tokens_predicted"], 40);
    assert_eq!(whole["stop_type"], "limit");
    assert_eq!(whole["generation_settings"]["seed"], 3);
    let mut long = body.clone();
    long["seed"] = ((1u64 << 40) + 3).into();
    assert_eq!(server.post("/completion", long).json()["content"], content);
    let streamed = text(server.stream("/completion", body.clone()), |event| &event["content"]);
    assert_eq!(streamed, content);
    let openai = server.post("/v1/completions", body.clone()).json();
    assert_eq!(openai["choices"][0]["text"], content);
    assert_eq!(openai["choices"][0]["finish_reason"], "length");
    assert_eq!(openai["usage"]["completion_tokens"], 40);
    let streamed = server.stream("/v1/completions", body);
    assert_eq!(text(streamed, |event| &event["choices"][0]["text"]), content);
}

#[test]
fn a_conversation_is_rendered_and_continued() {
    let server = serve(&["-c", "256", "--chat-template", TEMPLATE]);
    let messages = json!([
        { "role": "system", "content": "be there" },
        { "role": "user", "content": [{ "type": "text", "text": "on the inner rein" }] },
    ]);
    let rendered = server.post("/apply-template", json!({ "messages": messages })).json();
    assert_eq!(rendered["prompt"], "be there, on the inner rein, ");
    let body = json!({ "messages": messages, "max_tokens": 30, "seed": 5 });
    let whole = server.post("/v1/chat/completions", body.clone()).json();
    let content = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(whole["choices"][0]["message"]["role"], "assistant");
    assert!(!content.is_empty());
    let streamed = server.stream("/v1/chat/completions", body.clone());
    assert_eq!(text(streamed, |event| &event["choices"][0]["delta"]["content"]), content);
    let completion = json!({ "prompt": rendered["prompt"], "n_predict": 30, "seed": 5 });
    let completion = server.post("/completion", completion).json();
    assert_eq!(completion["content"], content, "a text is a prompt like a conversation");
}

#[test]
fn several_answers_differ_and_can_be_repeated() {
    let server = serve(&["-c", "256", "-np", "3"]);
    let body = json!({ "prompt": PROMPT, "max_tokens": 24, "n": 4, "seed": 11, "temperature": 2 });
    let answers = server.post("/v1/completions", body.clone()).json();
    let texts = |answers: &Value| -> Vec<String> {
        let choices = answers["choices"].as_array().unwrap();
        choices.iter().map(|choice| choice["text"].as_str().unwrap().to_string()).collect()
    };
    let first = texts(&answers);
    assert_eq!(first.len(), 4);
    for (index, text) in first.iter().enumerate() {
        assert!(!first[..index].contains(text), "{first:?}");
    }
    assert_eq!(answers["usage"]["completion_tokens"], 4 * 24);
    assert_eq!(texts(&server.post("/v1/completions", body).json()), first);
}

#[test]
fn a_prompt_counts_once_however_many_answers_it_has() {
    let usage = |server: &Server, path: &str, prompt: Value, n: usize| {
        let mut body =
            json!({ "max_tokens": 4, "n": n, "stream_options": { "include_usage": true } });
        body.as_object_mut().unwrap().extend(prompt.as_object().unwrap().clone());
        let whole = server.post(path, body.clone()).json()["usage"].take();
        let streamed = server.stream(path, body).last().unwrap()["usage"].take();
        [whole, streamed]
    };
    for (path, prompt) in [
        ("/v1/completions", json!({ "prompt": [PROMPT, "rain"] })),
        (
            "/v1/chat/completions",
            json!({ "messages": [{ "role": "user", "content": "be on the inner rein" }] }),
        ),
    ] {
        let server = serve(&["-c", "256", "--chat-template", TEMPLATE]);
        let [first, again] = usage(&server, path, prompt.clone(), 1);
        let cached = |usage: &Value| usage["prompt_tokens_details"]["cached_tokens"].as_u64();
        assert!(cached(&first) < cached(&again), "{path}: {first} {again}");
        let [whole, streamed] = usage(&server, path, prompt, 3);
        for several in [whole, streamed] {
            assert_eq!(several["prompt_tokens"], first["prompt_tokens"], "{path}");
            assert_eq!(cached(&several), cached(&again), "{path}");
            let generated = first["completion_tokens"].as_u64().unwrap();
            assert_eq!(several["completion_tokens"], 3 * generated, "{path}");
        }
    }
}

#[test]
fn tokens_and_texts_are_converted() {
    let server: Server = serve(&["-c", "256"]);
    let tokens = server.post("/tokenize", json!({ "content": PROMPT })).json();
    let text = server.post("/detokenize", tokens.clone()).json();
    assert_eq!(text["content"], PROMPT);
    let of_text = json!({ "prompt": PROMPT, "n_predict": 8, "temperature": 0 });
    let with_bos = server.post("/tokenize", json!({ "content": PROMPT, "add_special": true }));
    let of_tokens =
        json!({ "prompt": with_bos.json()["tokens"], "n_predict": 8, "temperature": 0 });
    let [of_text, of_tokens] =
        [of_text, of_tokens].map(|body| server.post("/completion", body).json()["content"].take());
    assert_eq!(of_text, of_tokens);
}

#[test]
fn tokens_are_found_in_the_form_of_vllm() {
    let server = serve(&["-c", "256", "--chat-template", "<{{ messages[0].content }}>"]);
    let info = server.get("/tokenizer_info").json();
    assert_eq!(info["bos_token"], server.get("/props").json()["bos_token"]);
    // Harnesses look for the key.
    assert!(info.as_object().unwrap().contains_key("eos_token"), "{info}");
    let tokens = |body| server.post("/tokenize", body).json()["tokens"].take();
    let plain = tokens(json!({ "prompt": PROMPT, "add_special_tokens": false }));
    assert_eq!(plain, tokens(json!({ "content": PROMPT })));
    let with_ends = tokens(json!({ "prompt": PROMPT }));
    assert_eq!(with_ends, tokens(json!({ "content": PROMPT, "add_special": true })));
    assert_ne!(with_ends, plain);
    assert_eq!(server.post("/detokenize", json!({ "tokens": plain })).json()["prompt"], PROMPT);
    let messages = json!({ "messages": [{ "role": "user", "content": PROMPT }] });
    let rendered = server.post("/apply-template", messages.clone()).json()["prompt"].take();
    assert_eq!(tokens(messages), tokens(json!({ "content": rendered, "add_special": true })));
}

#[test]
fn a_gap_is_filled_by_a_model_that_can() {
    let request = json!({
        "input_prefix": "the ", "prompt": "rain ", "input_suffix": "north",
        "input_extra": [{ "text": "inner", "filename": "rein" }],
        "n_predict": 12, "temperature": 0,
    });
    serve(&["-c", "64"]).post("/infill", request.clone()).refused(501, &["Infill"]);
    let model = tiny_infilling(7);
    let server = Server::start(model.path(), &["-c", "64"]);
    let tokens = |content: &str| {
        let tokens = server.post("/tokenize", json!({ "content": content })).json();
        tokens["tokens"].as_array().unwrap().clone()
    };
    let extra = [tokens("\n\n--- snippet ---\n\n"), tokens("inner")].concat();
    let marks = |token: u32| vec![json!(token)];
    let gap =
        [marks(0), marks(1), tokens("the "), tokens("rain "), marks(2), tokens("north"), marks(3)];
    let prompt = json!([extra, gap.concat()].concat());
    let expected = json!({ "prompt": prompt, "n_predict": 12, "temperature": 0 });
    let expected = server.post("/completion", expected).json();
    let filled = server.post("/infill", request.clone()).json();
    assert_eq!(filled["content"], expected["content"]);
    assert_eq!(filled["prompt"], expected["prompt"]);
    for name in ["input_prefix", "input_suffix"] {
        let mut request = request.clone();
        request[name] = Value::Null;
        server.post("/infill", request).refused(400, &[name]);
    }
    let mut long = request;
    long["input_extra"] = json!([{ "text": "rein ".repeat(200) }]);
    let long = server.post("/infill", long).json();
    assert_eq!(long["tokens_evaluated"].as_u64().unwrap() + 12 + 1, 64, "what fits is read");
}

/// The log-likelihoods that evaluation harnesses ask for.
#[test]
fn an_echoed_prompt_has_the_probabilities_of_its_tokens() {
    let server = serve(&["-c", "256", "-ub", "8"]);
    let prompt = server.post("/tokenize", json!({ "content": PROMPT })).json()["tokens"].take();
    let generated = json!({
        "prompt": prompt, "max_tokens": 6, "logprobs": 1, "temperature": 0, "return_tokens": true,
    });
    let generated = server.post("/v1/completions", generated).json()["choices"][0].take();
    let logprobs = &generated["logprobs"];
    let mut tokens = prompt.as_array().unwrap().clone();
    let first = tokens.len();
    tokens.extend(logprobs["content"].as_array().unwrap().iter().map(|one| one["id"].clone()));
    assert_eq!(tokens.len(), first + 6);

    // Twice: a prompt in the cache is read again.
    for _ in 0..2 {
        let body = json!({ "prompt": tokens, "max_tokens": 0, "echo": true, "logprobs": 1 });
        let echoed = server.post("/v1/completions", body.clone()).json()["choices"][0].take();
        let list = |name: &str| echoed["logprobs"][name].as_array().unwrap().clone();
        let texts: Vec<_> =
            list("tokens").iter().map(|t| t.as_str().unwrap().to_string()).collect();
        assert_eq!(echoed["text"], texts.concat());
        assert_eq!(texts.len(), tokens.len());
        assert_eq!(list("token_logprobs")[0], Value::Null);
        assert_eq!(list("text_offset")[2], texts[..2].concat().chars().count());
        for (index, value) in logprobs["token_logprobs"].as_array().unwrap().iter().enumerate() {
            let of_prompt = &list("token_logprobs")[first + index];
            // Sums over a prompt have another order than sums over an answer.
            let difference = value.as_f64().unwrap() - of_prompt.as_f64().unwrap();
            assert!(difference.abs() < 1e-4, "{index}: {value} {of_prompt}");
            // The generated token is the likeliest one.
            let top = list("top_logprobs")[first + index].clone();
            assert_eq!(top.as_object().unwrap().keys().next(), Some(&texts[first + index]));
        }
        let streamed: Vec<_> = server.stream("/v1/completions", body).collect();
        let offsets = streamed.iter().flat_map(|event| {
            event["choices"][0]["logprobs"]["text_offset"].as_array().cloned().unwrap_or_default()
        });
        assert_eq!(offsets.collect::<Vec<_>>(), list("text_offset"));
    }
}

#[test]
fn an_echoed_prompt_has_the_probabilities_that_n_probs_asks_for() {
    let server = serve(&["-c", "256"]);
    let tokens = server.post("/tokenize", json!({ "content": PROMPT })).json()["tokens"].take();
    let mut body = json!({ "prompt": tokens, "max_tokens": 1, "echo": true, "n_probs": 1 });
    let choice = server.post("/v1/completions", body.clone()).json()["choices"][0].take();
    let count = choice["logprobs"]["tokens"].as_array().unwrap().len();
    assert_eq!(count, tokens.as_array().unwrap().len() + 1);
    body["post_sampling_probs"] = true.into();
    server.post("/v1/completions", body).refused(400, &["\"echo\"", "post_sampling_probs"]);
}

/// Harnesses drop one generated token, which may be the one that ends the answer.
#[test]
fn a_token_that_ends_an_echoed_prompt_counts() {
    let server = serve(&["-c", "256", "--override-kv", "tokenizer.ggml.eos_token_id=int:5"]);
    let tokens = server.post("/tokenize", json!({ "content": PROMPT })).json()["tokens"].take();
    for (bias, reason) in [(-1000, "length"), (1000, "stop")] {
        let choice = server.post(
            "/v1/completions",
            json!({
                "prompt": tokens, "max_tokens": 1, "echo": true, "logprobs": 1, "temperature": 0,
                "logit_bias": { "5": bias },
            }),
        );
        let choice = choice.json()["choices"][0].take();
        assert_eq!(choice["finish_reason"], reason);
        let count = choice["logprobs"]["token_logprobs"].as_array().unwrap().len();
        assert_eq!(count, tokens.as_array().unwrap().len() + 1, "{reason}");
    }
}

#[test]
fn the_best_of_several_completions_is_chosen() {
    let server = serve(&["-c", "256", "-np", "4"]);
    let body = |more: Value| {
        let mut body = json!({ "prompt": PROMPT, "max_tokens": 8, "seed": 1, "logprobs": 0 });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/v1/completions", body)
    };
    let choices = |more| body(more).json()["choices"].as_array().unwrap().clone();
    let mean = |choice: &Value| {
        let all = choice["logprobs"]["token_logprobs"].as_array().unwrap().clone();
        all.iter().map(|value| value.as_f64().unwrap()).sum::<f64>() / all.len() as f64
    };
    let mut all: Vec<_> = choices(json!({ "n": 4 }));
    all.sort_by(|a, b| mean(b).total_cmp(&mean(a)));
    let best = choices(json!({ "n": 2, "best_of": 4 }));
    let texts = |choices: &[Value]| choices.iter().map(|c| c["text"].clone()).collect::<Vec<_>>();
    assert_eq!(texts(&best), texts(&all[..2]));
    assert_eq!((&best[0]["index"], &best[1]["index"]), (&json!(0), &json!(1)));
    body(json!({ "n": 3, "best_of": 2 })).refused(400, &["\"best_of\"", "from 3 to 64"]);
    body(json!({ "best_of": 2, "stream": true })).refused(400, &["\"best_of\"", "stream"]);
}

#[test]
fn a_completion_may_have_a_suffix() {
    let model = tiny_infilling(7);
    let server = Server::start(model.path(), &["-c", "256"]);
    let completion =
        json!({ "prompt": "rain", "suffix": "north", "max_tokens": 8, "temperature": 0 });
    let infill = json!({
        "input_prefix": "rain", "input_suffix": "north", "n_predict": 8, "temperature": 0,
    });
    let completed = server.post("/v1/completions", completion.clone()).json();
    assert_eq!(completed["choices"][0]["text"], server.post("/infill", infill).json()["content"]);
    let error = serve(&["-c", "256"]).post("/v1/completions", completion);
    assert_eq!(error.refused(400, &["\"suffix\"", "no tokens for a"])["param"], "suffix");
}

#[test]
fn a_model_is_found_by_its_name() {
    let server = serve(&["-c", "256", "--alias", "tiny"]);
    assert_eq!(server.get("/v1/models").json()["models"], json!([]));
    assert_eq!(server.get("/v1/models/tiny").json()["id"], "tiny");
    server.get("/v1/models/gpt").refused(404, &["\"gpt\" does not exist", "\"tiny\""]);
    let server = serve(&["-c", "256", "--host", "localhost", "--alias", "org/tiny"]);
    assert_eq!(server.get("/v1/models/org/tiny").json()["id"], "org/tiny");
    assert_eq!(server.get("/v1/models/org%2Ftiny").json()["id"], "org/tiny");
}
