//! Regular expressions as Lark.

use llguidance::regex_to_lark;
use regex_automata::util::syntax;

use super::error::{Error, Position};

/// Returns a grammar of the texts that match a whole regular expression.
///
/// # Errors
/// Returns an error if the expression is invalid.
pub fn to_lark(pattern: &str) -> Result<String, Error> {
    if let Err(e) = syntax::parse(pattern) {
        // The last of several lines has the message; the line before it marks the position.
        let lines = e.to_string();
        let message = lines.lines().find_map(|line| line.strip_prefix("error: "));
        let mark = lines.lines().find(|line| line.trim_start().starts_with('^'));
        let indent = "    ".len();
        let column = mark.and_then(|line| line.find('^')?.checked_sub(indent)).map(|i| i + 1);
        let position = column
            .filter(|_| !pattern.contains('\n'))
            .map(|column| Position::Character { line: 1, column });
        return Err(Error::invalid(position, message.unwrap_or(&lines)));
    }
    // An empty pattern between slashes would be a comment.
    let pattern = if pattern.is_empty() { "(?:)" } else { pattern };
    Ok(format!("start: /{}/", regex_to_lark(pattern, "")))
}
