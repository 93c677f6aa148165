//! Patterns in the schemas of tools.

use regex_automata::util::syntax;
use serde_json::Value as Json;

/// Keywords with data as values, not schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// Removes patterns that llguidance refuses from a schema. Such a pattern is invalid, or looks
/// around, like `\b` and `(?!a)`.
pub fn remove_unknown(schema: &mut Json) {
    match schema {
        Json::Array(schemas) => schemas.iter_mut().for_each(remove_unknown),
        Json::Object(keywords) => {
            if keywords.get("pattern").and_then(Json::as_str).is_some_and(|one| !known(one)) {
                keywords.shift_remove("pattern");
            }
            if let Some(Json::Object(schemas)) = keywords.get_mut("patternProperties") {
                schemas.retain(|pattern, _| known(pattern));
            }
            let schemas = keywords.iter_mut().filter(|(name, _)| !DATA.contains(&name.as_str()));
            schemas.for_each(|(_, schema)| remove_unknown(schema));
        }
        _ => {}
    }
}

fn known(pattern: &str) -> bool {
    syntax::parse(pattern).is_ok_and(|parsed| {
        let looks = parsed.properties().look_set();
        !looks.contains_word() && !looks.contains_anchor_line()
    })
}
