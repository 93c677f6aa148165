//! A chat template of a stranger renders within its limits, or fails with an error.
//!
//! The input is the template and the texts of messages, with the byte 255 between them.
#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use rope_cpu_chat::{Message, Role, Template, ToolChoice, Tools};
use rope_cpu_fuzz::answers::{read, tools};

/// Maximum time of an input: some times what the limits of templates allow, since sanitizers are slow.
const TIME_MAX: Duration = Duration::from_secs(20);

fuzz_target!(|input: &[u8]| {
    let began = Instant::now();
    let mut parts = input.split(|byte| *byte == 255).map(String::from_utf8_lossy);
    let source = parts.next().unwrap_or_default();
    let Ok(template) = Template::new(&source, "<s>", "</s>") else { return };
    let roles = [Role::System, Role::User, Role::Assistant, Role::Tool, Role::Developer];
    let message = |(text, role): (_, &Role)| Message::new(*role, text);
    let messages: Vec<_> = parts.zip(roles.iter().cycle()).take(6).map(message).collect();
    let tools = tools(ToolChoice::Auto);
    let prompt = template.render(&messages, &[], true);
    let _ = template.render(&messages, tools.all(), true);
    let prompt = prompt.unwrap_or_default();
    let parser = template.format().parser(&prompt, &Tools::default());
    read(parser, ["<think>", "a</think>", "b"]);
    assert!(began.elapsed() < TIME_MAX, "{:?}", began.elapsed());
});
