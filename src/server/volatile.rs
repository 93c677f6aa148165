//! Removes parts of prompts that clients change at each request. A change near the start of a
//! prompt makes the cache useless for all text after it.
//!
//! | name | where | what |
//! |---|---|---|
//! | billing header | at the start of a system message | `x-anthropic-billing-header: cc_version=2.1; cch=1f3;` |
//! | tokens left | anywhere | `<total_tokens>123456 tokens left</total_tokens>` |

use rope_cpu::chat::{Message, Role};
use tracing::info;

/// The start of Claude Code's billing header.
const BILLING: &str = "x-anthropic-billing-header:";

/// The markers around the number of tokens left. Some agents add it to each turn.
const TOKENS_LEFT: [&str; 2] = ["<total_tokens>", "</total_tokens>"];

/// Maximum bytes between [`TOKENS_LEFT`]. Longer text is not a number of tokens.
const TOKENS_LEFT_MAX: usize = 64;

/// Removes the volatile parts of messages, and logs their names.
pub fn remove(messages: &mut [Message]) {
    let (mut headers, mut markers) = (0, 0);
    for message in messages {
        if matches!(message.role, Role::System | Role::Developer)
            && let Some(length) = billing_header(&message.content)
        {
            message.content.drain(..length);
            headers += 1;
        }
        markers += remove_tokens_left(&mut message.content);
    }
    if headers + markers > 0 {
        info!(
            target: "cache", billing_headers = headers, tokens_left = markers,
            "removed parts that change at each request; --keep-volatile keeps them"
        );
    }
}

/// Returns the length of a billing header: fields `name=value;` and the space after them.
fn billing_header(text: &str) -> Option<usize> {
    let mut rest = text.strip_prefix(BILLING)?;
    loop {
        let field = rest.trim_start_matches(' ');
        let Some((content, after)) = field.split_once(';') else { break };
        if !content.contains('=') || content.contains(char::is_whitespace) {
            break;
        }
        rest = after;
    }
    Some(text.len() - rest.trim_start().len())
}

/// Removes the numbers of tokens left in one pass. Returns how many there were. If the remaining
/// text forms another marker, it stays.
fn remove_tokens_left(text: &mut String) -> usize {
    let [open, close] = TOKENS_LEFT;
    let (mut kept, mut done, mut markers) = (String::new(), 0, 0);
    for (start, _) in text.match_indices(open) {
        if start < done {
            continue;
        }
        let inner = start + open.len();
        let last = text.floor_char_boundary(inner + TOKENS_LEFT_MAX + close.len());
        if let Some(length) = text[inner..last].find(close) {
            kept += &text[done..start];
            done = inner + length + close.len();
            markers += 1;
        }
    }
    if markers > 0 {
        kept += &text[done..];
        *text = kept;
    }
    markers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(role: &str, text: &str) -> String {
        let message = serde_json::json!({ "role": role, "content": text }).to_string();
        let mut messages = [rope_cpu::json::parse::<Message>(&message).unwrap()];
        remove(&mut messages);
        std::mem::take(&mut messages[0].content)
    }

    #[test]
    fn prompts_that_differ_in_volatile_parts_are_the_same() {
        let header =
            "x-anthropic-billing-header: cc_version=2.1.15.a; cc_entrypoint=cli; cch=00a1;";
        for (text, expected) in [
            (format!("{header}You are an agent; be brief."), "You are an agent; be brief."),
            (format!("{header}\n\nYou are x=y; so be it."), "You are x=y; so be it."),
            ("x-anthropic-billing-header: cch=1;".into(), ""),
            (format!("Not at the start: {header}"), &*format!("Not at the start: {header}")),
        ] {
            assert_eq!(removed("system", &text), expected);
        }
        // A user may ask about it, so it stays.
        assert_eq!(removed("user", header), header);
        let left = "<total_tokens>199000 tokens left</total_tokens>";
        assert_eq!(removed("user", &format!("a{left}b{left}")), "ab");
        let long = format!("<total_tokens>{}</total_tokens>", "x".repeat(TOKENS_LEFT_MAX + 1));
        assert_eq!(removed("user", &format!("{long}{left}")), long);
        assert_eq!(removed("user", "<total_tokens>1"), "<total_tokens>1");
        // The limit is in the middle of a character.
        let cut = format!("<total_tokens>{}é", "x".repeat(TOKENS_LEFT_MAX + 14));
        assert_eq!(removed("user", &cut), cut);
        let joined = "<total_<total_tokens>1</total_tokens>tokens>2</total_tokens>";
        assert_eq!(removed("user", joined), "<total_tokens>2</total_tokens>");
    }

    /// If the search looked further than a marker, or started again after one, this would take
    /// minutes.
    #[test]
    fn long_texts_of_markers_take_one_pass() {
        let [open, close] = TOKENS_LEFT;
        let opened = open.repeat(300_000);
        let longest = TOKENS_LEFT_MAX - TOKENS_LEFT_MAX % open.len();
        // The last marker has as many opening tags as fit.
        let kept = &opened[..opened.len() - longest - open.len()];
        assert_eq!(removed("user", &format!("{opened}{close}")), kept);
        let many = format!("a{open}1{close}").repeat(300_000);
        assert_eq!(removed("user", &many), "a".repeat(300_000));
    }
}
