//! Options of what precedes the text of a prompt.

use std::path::PathBuf;

use super::TemplateArgs;
use crate::cli::{error::Error, escapes::unescaped, text};
use rope_cpu::model::Model;

/// The options of what precedes the text of a prompt: the system message and the template.
#[derive(Clone, Debug, clap::Args)]
pub struct OpeningArgs {
    /// System message
    ///
    /// Implies -cnv.
    #[arg(long, alias = "-sys", value_name = "TEXT", allow_hyphen_values = true)]
    #[arg(conflicts_with = "system_prompt_file")]
    pub system_prompt: Option<String>,

    /// File with the system message
    #[arg(long, alias = "-sysf", value_name = "FILE")]
    pub system_prompt_file: Option<PathBuf>,

    /// Do not process escapes such as \n and \t
    ///
    /// Otherwise \n, \r, \t, \', \", \\ and \xHH in texts of the command line are replaced.
    #[arg(long, overrides_with = "escape")]
    pub no_escape: bool,

    /// Process escapes such as \n and \t (the default)
    #[arg(short, long, hide_short_help = true)]
    pub escape: bool,

    /// Conversation mode (chat template)
    ///
    /// This is the default if the model has a template. The text is then the first message.
    #[arg(long, alias = "-cnv", overrides_with = "no_conversation")]
    pub conversation: bool,

    /// Continue plain text, no template
    #[arg(long, alias = "-no-cnv", overrides_with = "conversation")]
    pub no_conversation: bool,

    #[command(flatten)]
    pub template: TemplateArgs,
}

impl OpeningArgs {
    /// Returns the system message, if one is given.
    ///
    /// # Errors
    /// If the file cannot be read or is not UTF-8, or if escapes on the command line are not UTF-8.
    pub fn system(&self) -> Result<Option<String>, Error> {
        match (&self.system_prompt, &self.system_prompt_file) {
            (Some(text), _) => unescaped("--system-prompt", text, self.no_escape).map(Some),
            (None, Some(path)) => text::file(path).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Returns a given flag that starts a conversation, whether or not the model has a template.
    pub fn conversation_flag(&self) -> Option<&'static str> {
        let system = self.system_prompt.is_some() || self.system_prompt_file.is_some();
        let flags = [
            (self.conversation, "-cnv"),
            (system, "-sys"),
            (self.template.chat_template.is_some(), "--chat-template"),
            (self.template.chat_template_file.is_some(), "--chat-template-file"),
            (self.template.chat_template_kwargs.is_some(), "--chat-template-kwargs"),
        ];
        flags.iter().find(|(given, _)| *given).map(|(_, flag)| *flag)
    }

    /// Returns whether the text is a message in a chat template. `flag` is one that starts a
    /// conversation.
    ///
    /// # Errors
    /// If `flag` is given together with -no-cnv.
    pub fn is_chat(&self, flag: Option<&str>, model: &Model) -> Result<bool, Error> {
        match (flag, self.no_conversation) {
            (Some(flag), true) => Err(Error::usage(format_args!(
                "{flag} starts a conversation and -no-cnv excludes one: remove one of the two flags"
            ))),
            (Some(_), false) => Ok(true),
            (None, true) => Ok(false),
            (None, false) => Ok(model.metadata().get("tokenizer.chat_template").is_some()),
        }
    }
}
