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
