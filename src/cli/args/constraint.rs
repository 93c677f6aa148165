//! The options of the grammar that an answer follows.

use std::path::PathBuf;

/// The options of the grammar that an answer follows.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Answer")]
pub struct ConstraintArgs {
    /// Grammar that each answer follows (GBNF)
    ///
    /// The rule `root` describes a whole answer: --grammar 'root ::= "yes" | "no"'. A text that
    /// starts with %llguidance is a grammar in llguidance's variant of Lark.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["grammar_file", "json_schema", "json_schema_file"])]
    pub grammar: Option<String>,

    /// Read the grammar from a file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json_schema", "json_schema_file"])]
    pub grammar_file: Option<PathBuf>,

    /// JSON schema that each answer follows
    ///
    /// {"type": "object"} allows any object. The model does not see the schema, so describe the
    /// object in the prompt.
    #[arg(short, long, value_name = "SCHEMA", allow_hyphen_values = true)]
    #[arg(conflicts_with = "json_schema_file")]
    pub json_schema: Option<String>,

    /// Read the JSON schema from a file
    #[arg(long, alias = "-jf", value_name = "FILE")]
    pub json_schema_file: Option<PathBuf>,
}
