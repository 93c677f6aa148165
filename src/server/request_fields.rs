//! How the server treats fields of several interfaces that have no effect here.
//!
//! The types of requests list all fields with their treatment: see [`object!`](crate::object). An
//! unsupported field is an error if it would change an answer. Unknown fields are ignored, as in
//! llama-server, and logged. docs/fields.md lists the fields of all types.

use super::read::Treatment::{self, Ignored, Refused};

/// For fields about the cache.
pub const CACHE: Treatment = Ignored("the longest known prefix is always reused");
/// For fields about the user.
pub const ABOUT_USER: Treatment = Ignored("for the provider's records");
/// For fields about the quality of service.
pub const TIER: Treatment = Ignored("all requests are served alike");
/// For fields that store an answer.
pub const STORED: Treatment = Ignored("nothing is stored");
/// For fields that refer to a stored answer.
pub const NOT_STORED: Treatment = Refused("nothing is stored: send the whole conversation", &[]);
/// For fields about sound.
pub const TEXT_ONLY: Treatment = Refused("the model writes text only", &["text"]);
/// For fields about a search.
pub const NO_SEARCH: Treatment = Refused("the server does not search the web", &[]);
/// For fields about the length of an answer.
pub const LENGTH: Treatment = Refused("ask for the length in the prompt", &["medium"]);
/// For fields that pad a stream.
pub const NO_OBFUSCATION: Treatment = Ignored("there is nothing to obfuscate");
/// For fields about summaries of reasoning.
pub const NO_SUMMARY: Treatment = Ignored("reasoning comes as the model writes it");
/// For fields about the hardware.
pub const HARDWARE: Treatment = Ignored("set it on the command line");
/// For fields about a context shift.
pub const SHIFT: Treatment = Ignored("--context-shift is an option of the server");
/// For fields about texts that are too long.
pub const WHOLE_TEXTS: Treatment = Ignored("a text that does not fit is an error");
/// For fields about the time that a model stays loaded.
pub const LOADED: Treatment =
    Treatment::Used(" How long the model stays open. With `-m` it has no effect.");

#[cfg(test)]
mod tests {
    use std::{env, fmt::Write, fs};

    use super::{
        super::{
            anthropic::request::Messages,
            chat::ChatFields,
            embeddings::{self, EmbeddingFields},
            guided::Guided,
            native::{
                completion::{CompletionFields, Report},
                infill::Infill,
            },
            ollama,
            openai::{self, completions::CompletionsRequest, responses::request::Responses},
            parameters::Shared,
            read::{Entry, Read},
            rerank::Rerank,
            sampling::Sampling,
            timings::Streamed,
        },
        *,
    };

    /// A section of the page: its heading, and the types with its fields.
    type Section = (&'static str, &'static [&'static [Entry]]);

    const SECTIONS: [Section; 13] = [
        ("All interfaces", &[Shared::ENTRIES, Sampling::ENTRIES, Guided::ENTRIES]),
        ("All interfaces for conversations", &[ChatFields::ENTRIES]),
        (
            "/v1/chat/completions",
            &[openai::chat::request::Completions::ENTRIES, Report::ENTRIES, Streamed::ENTRIES],
        ),
        ("/v1/completions", &[CompletionsRequest::ENTRIES]),
        ("/v1/responses", &[Responses::ENTRIES, Streamed::ENTRIES]),
        ("/v1/embeddings and /embeddings", &[embeddings::Embed::ENTRIES, EmbeddingFields::ENTRIES]),
        ("/v1/rerank", &[Rerank::ENTRIES]),
        ("/v1/messages", &[Messages::ENTRIES]),
        ("/api/chat and /api/generate", &[ollama::request::Fields::ENTRIES]),
        ("options of /api/chat and /api/generate", &[ollama::request::Options::ENTRIES]),
        (
            "/api/embed and /api/embeddings",
            &[ollama::embed::Embed::ENTRIES, EmbeddingFields::ENTRIES],
        ),
        ("/completion", &[CompletionFields::ENTRIES, Report::ENTRIES, Streamed::ENTRIES]),
        ("/infill", &[Infill::ENTRIES]),
    ];

    /// Returns the rows of fields. The name of a nested field follows the name of its object.
    fn rows(entries: &[Entry], object: &str) -> Vec<(String, String)> {
        let rows = entries.iter().flat_map(|entry| {
            let name = format!("{object}{}", entry.name);
            if !entry.nested.is_empty() {
                return rows(entry.nested, &format!("{name}."));
            }
            let cell = match entry.treatment {
                Treatment::Used(effect) => effect.trim().to_string(),
                Ignored(reason) => format!("no effect: {reason}"),
                Refused(reason, []) => format!("refused: {reason}"),
                Refused(reason, permitted) => {
                    format!("refused, except `{}`: {reason}", permitted.join("`, `"))
                }
            };
            vec![(name, cell)]
        });
        rows.collect()
    }

    fn sections() -> impl Iterator<Item = (&'static str, Vec<(String, String)>)> {
        SECTIONS.into_iter().map(|(name, types)| {
            let mut rows: Vec<_> = types.iter().flat_map(|entries| rows(entries, "")).collect();
            rows.sort();
            (name, rows)
        })
    }

    fn page() -> String {
        let mut page = String::from(
            "# Fields of requests\n\n\
             What the server does with the fields of each interface. The settings of samplers, such as `top_k` \
             or\n`temperature`, have their names on the command line and work in all of them. vLLM's\n\
             `repetition_penalty` is `repeat_penalty`, over the last `repeat_last_n` tokens. Other fields are\n\
             ignored; the log names each of them once.\n",
        );
        for (name, rows) in sections() {
            write!(page, "\n## {name}\n\n| field | |\n|---|---|\n").unwrap();
            for (field, cell) in rows {
                writeln!(page, "| `{field}` | {cell} |").unwrap();
            }
        }
        page
    }

    #[test]
    fn the_book_lists_every_field() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/fields.md");
        if env::var_os("FIELDS").is_some_and(|value| value == "write") {
            fs::write(file, page()).unwrap();
        }
        let written = fs::read_to_string(file).unwrap();
        assert_eq!(written, page(), "write docs/fields.md anew: FIELDS=write cargo test fields");
    }

    #[test]
    fn names_are_different() {
        for (section, rows) in sections() {
            for pair in rows.windows(2) {
                assert_ne!(pair[0].0, pair[1].0, "{section}");
            }
        }
    }
}
