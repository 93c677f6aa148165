//! Answers in the forms of Anthropic, of OpenAI's responses, and of ollama, and embeddings.

use std::io::Write;

use serde_json::{Value, json};

use crate::server::harness::{PROMPT, Reply, Server, serve};

/// A template with the texts of the messages only, in the vocabulary of the tiny model.
const TEMPLATE: &str = "{% for m in messages %}{{ m.content }}, {% endfor %}";

fn server() -> Server {
    serve(&["-c", "256", "--chat-template", TEMPLATE])
}

/// Returns the text of an answer to [`PROMPT`] by the interface that other tests check.
fn expected(server: &Server) -> String {
    let body = json!({
        "messages": [{ "role": "user", "content": PROMPT }], "max_tokens": 20, "seed": 5,
    });
    let answer = server.post("/v1/chat/completions", body).json();
    answer["choices"][0]["message"]["content"].as_str().unwrap().into()
}

/// Returns the concatenated texts of a field of those events that have it.
fn joined(events: &[Value], pointer: &str) -> String {
    events.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

/// Returns the types of events, without repetitions.
fn types(events: &[Value]) -> Vec<&str> {
    let mut types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    types.dedup();
    types
}

#[test]
fn anthropics_messages() {
    let server = server();
    let expected = expected(&server);
    let body = json!({
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": PROMPT }] }],
        "max_tokens": 20,
        "seed": 5,
    });
    let whole = server.post("/v1/messages", body.clone()).json();
    assert_eq!(whole["content"], json!([{ "type": "text", "text": expected }]));
    assert_eq!(whole["stop_reason"], "max_tokens");
    assert_eq!(whole["usage"]["output_tokens"], 20);
    let tokens = server.post("/v1/messages/count_tokens", body.clone()).json();
    let input = |usage: &Value| {
        ["input_tokens", "cache_read_input_tokens"].map(|name| usage[name].as_u64().unwrap())
    };
    assert_eq!(tokens["input_tokens"], input(&whole["usage"]).iter().sum::<u64>());
    let events: Vec<_> = server.stream("/v1/messages", body.clone()).collect();
    assert_eq!(joined(&events, "/delta/text"), expected);
    let order = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(types(&events), order);
    let [read, cached] = input(&events[0]["message"]["usage"]);
    assert_eq!((read + cached).to_string(), tokens["input_tokens"].to_string());
    assert!(cached > 0, "the prompt was read before");
    let mut usage = events[0]["message"]["usage"].clone();
    usage["output_tokens"] = 20.into();
    assert_eq!(events[events.len() - 2]["usage"], usage, "the last counts have all of the first");

    let mut writing = body.clone();
    writing["messages"][0]["content"][0] = json!({ "type": "text", "text": "be on the rein", "cache_control": { "type": "ephemeral" } });
    let tokens = server.post("/v1/messages/count_tokens", writing.clone()).json();
    for is_cached in [false, true] {
        let usage = server.post("/v1/messages", writing.clone()).json()["usage"].take();
        let count = |name: &str| usage[name].as_u64().unwrap();
        let (written, read) =
            (count("cache_creation_input_tokens"), count("cache_read_input_tokens"));
        assert_eq!((written + read).to_string(), tokens["input_tokens"].to_string());
        assert_eq!(usage["input_tokens"], 0);
        assert_eq!(written < read, is_cached, "{usage}");
    }

    let mut stopped = body;
    stopped["stop_sequences"] = json!([&expected[3..6]]);
    let stopped = server.post("/v1/messages", stopped).json();
    assert_eq!(stopped["stop_reason"], "stop_sequence");
    assert_eq!(stopped["stop_sequence"], expected[3..6]);
}

#[test]
fn openais_responses() {
    let server = server();
    let expected = expected(&server);
    let body = json!({ "input": PROMPT, "max_output_tokens": 20, "seed": 5 });
    let whole = server.post("/v1/responses", body.clone()).json();
    assert_eq!((&whole["store"], &whole["tools"]), (&json!(false), &json!([])));
    assert_eq!(whole["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
    let id = whole["id"].as_str().unwrap();
    server.get(&format!("/v1/responses/{id}")).refused(404, &["are not stored"]);
    assert_eq!(whole["output"][0]["content"][0]["text"], expected);
    assert_eq!(whole["status"], "incomplete");
    assert_eq!(whole["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(whole["output"][0]["status"], "incomplete");
    let events: Vec<_> = server.stream("/v1/responses", body.clone()).collect();
    let of_type = |kind| events.iter().filter(move |event| event["type"] == kind);
    let deltas: Vec<_> = of_type("response.output_text.delta").cloned().collect();
    assert_eq!(joined(&deltas, "/delta"), expected);
    let order = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "incomplete",
    ];
    assert_eq!(types(&events), order.map(|kind| format!("response.{kind}")));
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let ended = of_type("response.incomplete").next().unwrap();
    let item = &of_type("response.output_item.done").next().unwrap()["item"];
    assert_eq!(ended["response"]["output"], json!([item]));
    assert_eq!(ended["response"]["usage"]["output_tokens"], 20);
    let tokens = server.post("/v1/responses/input_tokens", body).json()["input_tokens"].take();
    assert_eq!(ended["response"]["usage"]["input_tokens"], tokens);
    let stored = json!({ "input": PROMPT, "previous_response_id": "resp_1" });
    server
        .post("/v1/responses", stored)
        .refused(400, &["previous_response_id", "nothing is stored"]);
}

/// Fields of llama-server in a stream of /v1/responses: how far the prompt is read, and times with each text.
#[test]
fn responses_report_progress_and_times_when_asked() {
    let server = server();
    let body = json!({
        "input": PROMPT, "max_output_tokens": 4, "timings_per_token": true, "return_progress": true,
    });
    let events: Vec<_> = server.stream("/v1/responses", body).collect();
    let progress = events
        .iter()
        .find(|event| !event["prompt_progress"].is_null())
        .expect("the reading of the prompt is reported");
    assert_eq!(progress["type"], "response.in_progress");
    let count = |name: &str| progress["prompt_progress"][name].as_u64().unwrap();
    assert!(count("total") > 0 && count("processed") >= count("cache"));
    let mut counts = vec![];
    for event in &events {
        if ["response.output_text.delta", "response.incomplete"]
            .contains(&event["type"].as_str().unwrap())
        {
            let times = &event["timings"];
            assert!(
                times["prompt_per_second"].is_number() && times["predicted_per_second"].is_number(),
                "{event}"
            );
            counts.push(times["predicted_n"].as_u64().unwrap());
        }
    }
    assert_eq!((counts.len() > 1, counts.last()), (true, Some(&4)));
}

/// Returns the lines of a stream.
fn lines(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    reply.text.lines().map(|line| rope_cpu::json::parse(line).unwrap()).collect()
}

#[test]
fn ollamas_chat_and_generate() {
    let server = server();
    let expected = expected(&server);
    let options = json!({ "num_predict": 20, "seed": 5, "num_ctx": 256, "num_gpu": 1 });
    for (path, field, pointer, prompt) in [
        (
            "/api/chat",
            "messages",
            "/message/content",
            json!([{ "role": "user", "content": PROMPT }]),
        ),
        ("/api/generate", "prompt", "/response", json!(PROMPT)),
    ] {
        let body = json!({ field: prompt, "options": options });
        let streamed = lines(&server.post(path, body.clone()));
        assert_eq!(joined(&streamed, pointer), expected, "{path}");
        let (last, others) = streamed.split_last().unwrap();
        assert!(others.iter().all(|line| line["done"] == false));
        let mut body = body;
        body["stream"] = false.into();
        let whole = server.post(path, body.clone()).json();
        assert_eq!(whole.pointer(pointer).unwrap(), &expected, "{path}");
        for end in [last, &whole] {
            assert_eq!((&end["done"], &end["done_reason"]), (&json!(true), &json!("length")));
            assert_eq!(end["eval_count"], 20);
            assert!(end["total_duration"].as_u64() > Some(0));
        }
        body["options"]["num_ctx"] = 257.into();
        let refused = server.post(path, body);
        assert_eq!(refused.status, 400);
        let error: Value = rope_cpu::json::parse(&refused.text).unwrap();
        let message = error["error"].as_str().unwrap();
        assert!(message.contains("256") && message.contains("257"), "{message}");
        let loaded = server.post(path, json!({})).json();
        assert_eq!(loaded["done_reason"], "load");
    }
    let raw = json!({ "prompt": PROMPT, "raw": true, "stream": false, "options": options });
    let completion = json!({ "prompt": PROMPT, "n_predict": 20, "seed": 5 });
    let completion = server.post("/completion", completion).json();
    assert_eq!(server.post("/api/generate", raw).json()["response"], completion["content"]);
}

#[test]
fn ollamas_lists_have_the_model() {
    let server = serve(&["-c", "256", "--alias", "tiny"]);
    for path in ["/api/tags", "/api/ps"] {
        let model = server.get(path).json()["models"][0].take();
        assert_eq!(model["name"], "tiny", "{path}");
        assert_eq!(model["details"]["family"], "llama", "{path}");
        assert_eq!(model["digest"].as_str().unwrap().len(), 64, "{path}");
    }
    let shown = server.post("/api/show", json!({ "model": "tiny" })).json();
    assert_eq!(shown["model_info"]["llama.block_count"], 2);
    assert_eq!(shown["model_info"]["tokenizer.ggml.tokens"], Value::Null);
    assert!(server.get("/api/version").json()["version"].is_string());
}

#[test]
fn errors_have_the_form_of_their_interface() {
    let server = server();
    let error = |path| rope_cpu::json::parse::<Value>(&server.post(path, json!({})).text).unwrap();
    let anthropic = error("/v1/messages");
    assert_eq!(anthropic["type"], "error");
    assert_eq!(anthropic["error"]["type"], "invalid_request_error");
    let message = anthropic["error"]["message"].as_str().unwrap();
    assert!(message.contains("messages"), "{message}");
    assert!(error("/api/nothing")["error"].is_string());
    let openai = error("/v1/responses")["error"].take();
    assert_eq!((&openai["param"], &openai["code"]), (&json!("input"), &Value::Null));
    assert_eq!(error("/completion")["error"]["code"], 400);
    for (kind, media) in
        [("image_url", "image"), ("input_audio", "audio"), ("video_url", "video"), ("file", "file")]
    {
        let part = json!({ "type": kind, kind: { "url": "data:," } });
        let request = json!({ "messages": [{ "role": "user", "content": [part] }] });
        let refused = format!("{media} input is not supported");
        let reply = server.post("/v1/chat/completions", request);
        reply.refused(400, &[&refused]);
        let error: Value = rope_cpu::json::parse(&reply.text).unwrap();
        assert_eq!(error["error"]["param"], "messages[0].content[0]", "{error}");
    }
}

/// Returns the embeddings of a list of texts.
fn embeddings(server: &Server, input: Value) -> Vec<Vec<f64>> {
    let answer = server.post("/v1/embeddings", json!({ "input": input })).json();
    let numbers = |value: &Value| value.as_f64().unwrap();
    let row = |row: &Value| row["embedding"].as_array().unwrap().iter().map(numbers).collect();
    answer["data"].as_array().unwrap().iter().map(row).collect()
}

#[test]
fn embeddings_are_pooled_whatever_is_computed_with_them() {
    let mut pooled = Vec::new();
    for pooling in ["mean", "last"] {
        let server = serve(&["-c", "256", "-np", "3", "-ub", "8", "--pooling", pooling]);
        let texts = json!([PROMPT, "rein", "in the inner north there is rain", PROMPT]);
        let together = embeddings(&server, texts.clone());
        for (text, embedding) in texts.as_array().unwrap().iter().zip(&together) {
            let length: f64 = embedding.iter().map(|x| x * x).sum();
            assert!((length - 1.0).abs() < 1e-5, "{length}");
            assert_eq!(&embeddings(&server, json!([text]))[0], embedding, "{pooling}: {text}");
        }
        assert_eq!(together[0], together[3]);
        assert_ne!(together[0], together[1]);
        pooled.push(together[0].clone());
    }
    assert_ne!(pooled[0], pooled[1]);

    // The mean of all tokens' embeddings, and the last one of them.
    let server = serve(&["-c", "256", "--pooling", "none"]);
    let rows = server.post("/embeddings", json!({ "input": PROMPT })).json();
    let rows = rows[0]["embedding"].as_array().unwrap();
    let columns = rows[0].as_array().unwrap().len();
    let row = |row: &Value| -> Vec<f64> {
        row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    let mean = (0..columns).map(|column| rows.iter().map(|row| row[column]).sum());
    for (expected, found) in
        [(mean.collect(), &pooled[0]), (rows[rows.len() - 1].clone(), &pooled[1])]
    {
        let length = expected.iter().map(|x| x * x).sum::<f64>().sqrt();
        for (expected, found) in expected.iter().zip(found) {
            assert!((expected / length - found).abs() < 1e-6);
        }
    }
    server.post("/v1/embeddings", json!({ "input": PROMPT })).refused(400, &["--pooling mean"]);
}

#[test]
fn embeddings_have_an_encoding_a_usage_and_limits() {
    let server = serve(&["-c", "256"]);
    let post = |body| server.post("/v1/embeddings", body);
    let plain = embeddings(&server, json!(PROMPT)).remove(0);
    let answer = post(json!({ "input": PROMPT, "encoding_format": "base64" })).json();
    let mut bytes = Vec::new();
    for x in &plain {
        bytes.write_all(&(*x as f32).to_le_bytes()).unwrap();
    }
    use base64::{Engine, prelude::BASE64_STANDARD};
    assert_eq!(answer["data"][0]["embedding"], BASE64_STANDARD.encode(bytes));
    let with_bos = server.post("/tokenize", json!({ "content": PROMPT, "add_special": true }));
    let tokens = with_bos.json()["tokens"].as_array().unwrap().len();
    assert_eq!(answer["usage"], json!({ "prompt_tokens": tokens, "total_tokens": tokens }));
    for (body, part) in [
        (json!({}), "\"input\""),
        (json!({ "input": [] }), "not empty"),
        (json!({ "input": true }), "\"input\": must be"),
        (json!({ "input": PROMPT, "encoding_format": 1 }), "\"encoding_format\""),
        (
            json!({ "input": PROMPT, "dimensions": 65 }),
            "\"dimensions\": must be a whole number from 1 to 64",
        ),
        (json!({ "input": "rein ".repeat(300) }), "too large"),
        (json!({ "input": [{ "content": [{ "type": "video" }] }] }), "\"content\""),
    ] {
        post(body).refused(400, &[part]);
    }
    // Fewer dimensions have the direction of the first numbers, and length 1 again.
    let short = post(json!({ "input": PROMPT, "dimensions": 3 })).json();
    let short = short["data"][0]["embedding"].as_array().unwrap().clone();
    let length = plain[..3].iter().map(|x| x * x).sum::<f64>().sqrt();
    assert_eq!(short.len(), 3);
    for (short, x) in short.iter().zip(&plain) {
        assert!((short.as_f64().unwrap() - x / length).abs() < 1e-6);
    }
    let parts = json!({ "content": [{ "type": "text", "text": "the rain " },
        { "type": "text", "text": "in the north" }] });
    assert_eq!(
        embeddings(&server, json!([parts, PROMPT]))[0],
        embeddings(&server, json!(PROMPT))[0]
    );
}

#[test]
fn ollamas_embeddings_are_those_of_openai() {
    let server = serve(&["-c", "256", "--pooling", "mean"]);
    let expected = embeddings(&server, json!([PROMPT, "rain"]));
    let body = json!({ "model": "any", "input": [PROMPT, "rain"] });
    let answer = server.post("/api/embed", body).json();
    let close = |a: &Value, b: &[f64]| {
        let pairs = a.as_array().unwrap().iter().zip(b);
        pairs.map(|(a, b)| (a.as_f64().unwrap() - b).abs()).fold(0.0, f64::max) < 1e-6
    };
    for (index, expected) in expected.iter().enumerate() {
        assert!(close(&answer["embeddings"][index], expected), "{index}");
    }
    // The older form keeps the length.
    let older = server.post("/api/embeddings", json!({ "prompt": PROMPT })).json();
    let numbers = older["embedding"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap());
    let numbers: Vec<_> = numbers.collect();
    let length = numbers.iter().map(|x| x * x).sum::<f64>().sqrt();
    let unit: Vec<_> = numbers.iter().map(|x| x / length).collect();
    assert!(close(&answer["embeddings"][0], &unit), "{length}");
}

#[test]
fn ollamas_models_cannot_be_changed() {
    let server = server();
    for path in ["/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete"] {
        let reply = server.post(path, json!({ "model": "other" }));
        assert_eq!(reply.status, 501, "{path}");
        assert!(reply.text.contains("this server has one model"), "{}", reply.text);
    }
    assert_eq!(server.send("DELETE", "/api/delete", &[], "{}").status, 501);
}
