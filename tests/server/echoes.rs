//! Answers that a client sends back are found in the cache, whatever white space it gives them.

use rope_cpu::json;
use serde_json::{Value, json};

use crate::server::harness::Server;
use rope_cpu_testing::reader::tiny_agent;

/// A template in the format of Hermes.
const TEMPLATE: &str = "{% for tool in tools or [] %}{{ tool.function.name }},{% endfor %}\
    {% for m in messages %}{{ m.role }}-{{ m.content }}\
    {% for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": \
    {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}.\n{% endfor %}\
    {% if add_generation_prompt %}assistant-{% endif %}";

/// The turns of an agent.
const TURNS: usize = 10;

/// An interface: how an agent asks, what it sends back of an answer, and the tokens of both.
struct Interface {
    path: &'static str,
    /// The field of the messages.
    messages: &'static str,
    /// Fields beside the messages.
    fields: fn(u64) -> Value,
    /// The messages after an answer: the answer, and the result of its call.
    answered: fn(&Value, &str) -> Vec<Value>,
    /// The place of the name of the tool that an answer calls.
    name: &'static str,
    /// Counts of the tokens of the prompt, which add up, and of the answer.
    prompt: &'static [&'static str],
    generated: &'static str,
}

fn parameters() -> Value {
    json!({
        "type": "object", "additionalProperties": false, "required": ["there", "then"],
        "properties": {
            "there": { "type": "string", "enum": ["in the inn", "on the other one", "here and there"] },
            "then": {
                "type": "object", "additionalProperties": false, "required": ["a"],
                "properties": { "a": { "type": "boolean" }, "not": { "type": "boolean" } },
            },
        },
    })
}

/// Returns fields that make an answer call the tool.
fn sampling(seed: u64) -> Value {
    json!({ "seed": seed, "temperature": 2.0, "logit_bias": [["<tool_call>", 100]] })
}

fn with(mut fields: Value, more: Value) -> Value {
    fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    fields
}

fn functions() -> Value {
    json!([{ "type": "function", "function": { "name": "f", "parameters": parameters() } }])
}

/// Returns JSON without white space, as clients write it.
fn compact(text: &Value) -> Value {
    json::parse::<Value>(text.as_str().unwrap()).unwrap().to_string().into()
}

fn interfaces() -> [Interface; 4] {
    [
        Interface {
            path: "/v1/chat/completions",
            messages: "messages",
            fields: |seed| with(sampling(seed), json!({ "tools": functions(), "max_tokens": 200 })),
            answered: |answer, result| {
                let call = &answer["choices"][0]["message"]["tool_calls"][0];
                let function = &call["function"];
                let arguments = compact(&function["arguments"]);
                let function = json!({ "name": function["name"], "arguments": arguments });
                let call = json!({ "id": call["id"], "type": "function", "function": function });
                vec![
                    json!({ "role": "assistant", "content": null, "tool_calls": [call] }),
                    json!({ "role": "tool", "tool_call_id": call["id"], "content": result }),
                ]
            },
            name: "/choices/0/message/tool_calls/0/function/name",
            prompt: &["/usage/prompt_tokens"],
            generated: "/usage/completion_tokens",
        },
        Interface {
            path: "/v1/responses",
            messages: "input",
            fields: |seed| {
                let tool = json!({ "type": "function", "name": "f", "parameters": parameters() });
                with(sampling(seed), json!({ "tools": [tool], "max_output_tokens": 200 }))
            },
            answered: |answer, result| {
                let call = &answer["output"][0];
                let (id, arguments) = (&call["call_id"], compact(&call["arguments"]));
                vec![
                    json!({
                        "type": "function_call", "call_id": id, "name": call["name"],
                        "arguments": arguments,
                    }),
                    json!({ "type": "function_call_output", "call_id": id, "output": result }),
                ]
            },
            name: "/output/0/name",
            prompt: &["/usage/input_tokens"],
            generated: "/usage/output_tokens",
        },
        Interface {
            path: "/v1/messages",
            messages: "messages",
            fields: |seed| {
                let tool = json!({ "name": "f", "input_schema": parameters() });
                with(sampling(seed), json!({ "tools": [tool], "max_tokens": 200 }))
            },
            answered: |answer, result| {
                let id = &answer["content"][0]["id"];
                let result = json!({ "type": "tool_result", "tool_use_id": id, "content": result });
                vec![
                    json!({ "role": "assistant", "content": answer["content"] }),
                    json!({ "role": "user", "content": [result] }),
                ]
            },
            name: "/content/0/name",
            prompt: &["/usage/input_tokens", "/usage/cache_read_input_tokens"],
            generated: "/usage/output_tokens",
        },
        Interface {
            path: "/api/chat",
            messages: "messages",
            fields: |seed| {
                let options = with(sampling(seed), json!({ "num_predict": 200 }));
                json!({ "tools": functions(), "options": options, "stream": false })
            },
            answered: |answer, result| {
                vec![
                    answer["message"].clone(),
                    json!({ "role": "tool", "tool_name": "f", "content": result }),
                ]
            },
            name: "/message/tool_calls/0/function/name",
            prompt: &["/prompt_eval_count"],
            generated: "/eval_count",
        },
    ]
}

/// Returns the prompt tokens that a server has processed.
fn processed(server: &Server) -> u64 {
    let metrics = server.get("/metrics").text;
    let line = metrics.lines().find_map(|line| line.strip_prefix("llamacpp:prompt_tokens_total "));
    line.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

fn count(answer: &Value, places: &[&str]) -> u64 {
    let counts = places.iter().map(|place| answer.pointer(place).and_then(Value::as_u64));
    counts.map(|count| count.unwrap_or_else(|| panic!("{answer}"))).sum()
}

#[test]
fn an_agent_processes_only_the_new_tokens_of_each_turn() {
    let model = tiny_agent(7);
    let options = ["-c", "4096", "-np", "1", "--metrics", "--chat-template", TEMPLATE];
    let server = Server::start(model.path(), &options);
    for Interface { path, messages, fields, answered, name, prompt, generated } in interfaces() {
        // Not the conversation of another interface.
        let mut turns = vec![json!({ "role": "user", "content": format!("{path}: the rain") })];
        let (mut known, mut again) = (None, 0);
        let mut read = processed(&server);
        let mut last = Value::Null;
        for turn in 0..TURNS {
            let mut request = fields(turn as u64);
            request[messages] = turns.clone().into();
            let answer = server.post(path, request.clone()).json();
            assert_eq!(answer.pointer(name), Some(&json!("f")), "{answer}");
            let (prompt, generated) = (count(&answer, prompt), count(&answer, &[generated]));
            let now = processed(&server);
            if let Some(known) = known {
                again += (now - read) - (prompt - known);
            }
            // The last token of an answer is not computed before the next turn.
            (known, read) = (Some(prompt + generated - 1), now);
            turns.extend(answered(&answer, "on another street"));
            last = request;
        }
        assert_eq!(again, 0, "{path}: tokens processed again");
        // From the start and from the cache, a request has the same answer.
        let answers = [(); 2].map(|()| answered(&server.post(path, last.clone()).json(), ""));
        let [first, second] = answers.map(|answer| answer[0].to_string());
        let without_ids = |text: &str| text.split("id\":").next().unwrap().to_owned();
        assert_eq!(without_ids(&first), without_ids(&second), "{path}");
    }
}

#[test]
fn a_line_that_changes_costs_the_prompt_unless_it_is_moved() {
    let model = tiny_agent(7);
    let read = |options: &[&str]| {
        let options =
            [&["-c", "2048", "-np", "1", "--metrics", "--chat-template", TEMPLATE], options];
        let server = Server::start(model.path(), &options.concat());
        let rules = "the rain is on the street and in the inn. ".repeat(10);
        let turns = ["monday", "tuesday", "friday"].map(|day| {
            let system = format!("it is {day}\n{rules}");
            let messages = json!([
                { "role": "system", "content": system },
                { "role": "user", "content": "is there rain" },
            ]);
            let before = processed(&server);
            let body = json!({ "messages": messages, "max_tokens": 4 });
            server.post("/v1/chat/completions", body).json();
            processed(&server) - before
        });
        (turns, server.stderr())
    };
    let ([first, _, third], log) = read(&[]);
    assert!(third > first / 2, "{third} of {first}");
    assert_eq!(log.matches("a line of the first message has changed").count(), 2, "{log}");
    assert!(log.contains("line=1") && !log.contains("friday"), "{log}");
    let ([_, _, third], log) = read(&["--move-volatile"]);
    assert!(third < 30, "{third} of {first}");
    assert!(!log.contains("a line of the first message has changed"), "{log}");
}
