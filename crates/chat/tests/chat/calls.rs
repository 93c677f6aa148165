//! Tool calls and reasoning: how templates read them, and how answers are parsed.

mod formats;
mod pieces;
mod prompts;
mod reasoning;
mod whole;

use rope_cpu_chat::{Event, Format, Parser, Template, Tool, ToolCall, ToolChoice, Tools};
use rope_cpu_json as json;

/// Returns a template around the calls of a message `m`, from the texts of a call `f` with
/// `arguments`.
macro_rules! around {
    ($before:literal, $call:literal, $between:literal, $after:literal) => {
        concat!(
            "{% for tool in tools or [] %}{{ tool|tojson }}{% endfor %}{% for m in messages %}<{{ m.role }}>",
            "{{ m.content }}{% if m.tool_calls %}",
            $before,
            "{% for c in m.tool_calls %}{% set f, arguments = c.function.name, c.function.arguments %}",
            $call,
            "{% if not loop.last %}",
            $between,
            "{% endif %}{% endfor %}",
            $after,
            "{% endif %}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
        )
    };
}

/// The templates of all formats, with the format of each.
pub const TEMPLATES: &[(&str, &str, &str)] = &[
    ("hermes", "hermes", include_str!("../data/tools/hermes.jinja")),
    ("qwen3-coder", "qwen3-coder", include_str!("../data/tools/qwen3-coder.jinja")),
    ("llama3", "llama3", include_str!("../data/tools/llama3.jinja")),
    ("mistral", "mistral", include_str!("../data/tools/mistral.jinja")),
    ("mistral-args", "mistral", include_str!("../data/tools/mistral-args.jinja")),
    ("harmony", "harmony", include_str!("../data/tools/harmony.jinja")),
    ("gemma4", "gemma4", include_str!("../data/tools/gemma4.jinja")),
    // Granite, Apriel and others.
    (
        "list",
        "derived",
        around!(
            "<|tool_call|>[",
            "{{ '{' }}\"name\": \"{{ f }}\", \"arguments\": {{ arguments|tojson }}}",
            ", ",
            "]"
        ),
    ),
    // Apertus.
    (
        "keys",
        "derived",
        around!(
            "<|tools_prefix|>[",
            "{{ '{' }}\"{{ f }}\": {{ arguments|tojson }}}",
            ", ",
            "]<|tools_suffix|>"
        ),
    ),
    // Kimi K2, DeepSeek V3.
    (
        "section",
        "derived",
        around!(
            "<|calls_begin|>",
            "<|call_begin|>functions.{{ f }}:{{ loop.index0 }}<|args|>{{ arguments|tojson }}<|call_end|>",
            "",
            "<|calls_end|>"
        ),
    ),
    // GLM 4.
    (
        "glm4",
        "derived",
        around!(
            "",
            "{{ '\n' }}<tool_call>{{ f }}{% for k, v in arguments.items() %}{{ '\n' }}<arg_key>{{ k }}</arg_key>\
             {{ '\n' }}<arg_value>{{ v if v is string else v|tojson }}</arg_value>{% endfor %}{{ '\n' }}\
             </tool_call>",
            "",
            ""
        ),
    ),
    // MiniMax, DeepSeek V3.2.
    (
        "invoke",
        "derived",
        around!(
            "<calls>{{ '\n' }}",
            "<invoke name=\"{{ f }}\">{{ '\n' }}{% for k, v in arguments.items() %}<parameter name=\"{{ k }}\" \
             string=\"{{ 'true' if v is string else 'false' }}\">{{ v if v is string else v|tojson }}</parameter>\
             {{ '\n' }}{% endfor %}</invoke>{{ '\n' }}",
            "",
            "</calls>"
        ),
    ),
    (
        "lfm2",
        "lfm2",
        around!(
            "<|tool_call_start|>[",
            "{{ f }}({% for k, v in arguments.items() %}{{ k }}={{ v|tojson }}\
             {% if not loop.last %}, {% endif %}{% endfor %})",
            ", ",
            "]<|tool_call_end|>"
        ),
    ),
    // It describes tools and skips calls.
    (
        "lfm2-text",
        "lfm2",
        "{% if tools %}List of tools: [{{ tools|tojson }}]{% endif %}{% for m in messages %}<{{ m.role }}>\
         {{ m.content }}</s>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
    ),
    ("smollm2", "generic", include_str!("../data/smollm2.jinja")),
    ("gemma3", "generic", include_str!("../data/gemma3.jinja")),
];

pub fn template(name: &str) -> Template {
    let (.., source) = TEMPLATES.iter().find(|(other, ..)| *other == name).unwrap();
    Template::new(source, "<bos>", "</s>").unwrap()
}

pub fn format(name: &str) -> Format {
    template(name).format()
}

pub fn tool(name: &str, parameters: &str) -> Tool {
    let description = format!("Computes {name}.");
    Tool { name: name.into(), description, parameters: json::parse(parameters).unwrap() }
}

/// Two tools: `weather` of a place, and `add` of two numbers.
pub fn tools(choice: ToolChoice) -> Tools {
    let weather = r#"{"type": "object", "properties": {"place": {"type": "string"},
        "days": {"type": ["integer", "null"]}}, "required": ["place"]}"#;
    let add = r#"{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"]}"#;
    Tools::new(vec![tool("weather", weather), tool("add", add)], choice, true).unwrap()
}

fn call(name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: "abcdefghi".into(), name: name.into(), arguments: arguments.into() }
}

/// All events of an answer, put together.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    text: String,
    reasoning: String,
    /// Name, identifier, arguments, and whether the call is complete.
    calls: Vec<(String, Option<String>, String, bool)>,
}

impl Answer {
    fn add(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Text(piece) => self.text += &piece,
                Event::Reasoning(piece) => self.reasoning += &piece,
                Event::Call { index, name, id } => {
                    assert_eq!(index, self.calls.len());
                    self.calls.push((name, id, String::new(), false));
                }
                Event::Arguments(piece) => self.calls.last_mut().unwrap().2 += &piece,
                Event::CallEnd => self.calls.last_mut().unwrap().3 = true,
            }
        }
    }
}

fn read<'p>(mut parser: Parser, pieces: impl IntoIterator<Item = &'p str>) -> Answer {
    let mut answer = Answer::default();
    for piece in pieces {
        answer.add(parser.push(piece));
    }
    answer.add(parser.finish());
    answer
}

/// Parses a whole answer. The result must not depend on the pieces that are pushed.
fn parse(format: Format, prompt: &str, text: &str) -> Answer {
    let tools = tools(ToolChoice::Auto);
    let whole = read(format.parser(prompt, &tools), [text]);
    let letters = read(format.parser(prompt, &tools), text.split_inclusive(|_: char| true));
    assert_eq!(whole, letters, "{text}");
    whole
}

fn complete(
    name: &str,
    id: Option<&str>,
    arguments: &str,
) -> (String, Option<String>, String, bool) {
    (name.into(), id.map(str::to_owned), arguments.into(), true)
}
