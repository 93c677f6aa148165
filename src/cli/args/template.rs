//! Options of the chat template.

use std::path::PathBuf;

use super::ModelArgs;
use crate::cli::{error::Error, text};
use rope_cpu::{
    chat::{self, Template},
    model::Model,
};

/// The options that select a chat template.
#[derive(Clone, Debug, clap::Args)]
pub struct TemplateArgs {
    /// Chat template, instead of the model's
    ///
    /// A template in the Jinja language, or one of the names chatml, llama3, gemma and
    /// command-r.
    /// Implies -cnv.
    #[arg(long, alias = "LLAMA_ARG_CHAT_TEMPLATE", value_name = "JINJA")]
    #[arg(allow_hyphen_values = true, conflicts_with = "chat_template_file")]
    pub chat_template: Option<String>,

    /// Read the chat template from a file
    ///
    /// Implies -cnv.
    #[arg(long, alias = "LLAMA_ARG_CHAT_TEMPLATE_FILE", value_name = "FILE")]
    pub chat_template_file: Option<PathBuf>,

    /// Additional template parameters
    ///
    /// A JSON object, for example {"enable_thinking": false}. Implies -cnv.
    #[arg(long, alias = "LLAMA_ARG_CHAT_TEMPLATE_KWARGS", value_name = "JSON")]
    #[arg(allow_hyphen_values = true)]
    pub chat_template_kwargs: Option<String>,
}

impl TemplateArgs {
    /// Returns whether any option is given.
    pub fn given(&self) -> bool {
        self.chat_template.is_some()
            || self.chat_template_file.is_some()
            || self.chat_template_kwargs.is_some()
    }

    /// Returns the chat template of the command line, else of the model, with its origin.
    pub fn of(&self, args: &ModelArgs, model: &Model) -> Result<(String, Template), Error> {
        let tokenizer = model.tokenizer().map_err(Error::usage)?;
        let (origin, template) = match (&self.chat_template, &self.chat_template_file) {
            // A text without tags is a name: as a template it would be the same for every message.
            (Some(text), _) => {
                let template = match text.contains('{') {
                    true => chat::template(text, tokenizer),
                    false => {
                        chat::builtin(text).and_then(|source| chat::template(source, tokenizer))
                    }
                };
                ("--chat-template".to_string(), template)
            }
            (None, Some(path)) => {
                let source = text::file(path)?;
                (path.display().to_string(), chat::template(&source, tokenizer))
            }
            (None, None) => {
                let found = model.chat_template().map_err(Error::usage)?;
                let none = "the model has no chat template: give one with --chat-template or \
                            --chat-template-file, or continue plain text with -no-cnv";
                ("the model".to_string(), Ok(found.ok_or_else(|| args.named(none))?))
            }
        };
        let template = template.map_err(|e| Error::usage(format_args!("{origin}: {e}")))?;
        let template = match &self.chat_template_kwargs {
            Some(object) => template
                .arguments(object)
                .map_err(|e| Error::usage(format_args!("--chat-template-kwargs: {e}")))?,
            None => template,
        };
        Ok((origin, template))
    }
}
