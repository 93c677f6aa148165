//! The options of RoPE.

use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::parameters;
use rope_cpu::rope::{self, Flags};

/// The options that select a RoPE method and its parameters.
#[derive(Clone, Debug, Default)]
pub struct RopeArgs(Flags);

impl Args for RopeArgs {
    fn augment_args(command: Command) -> Command {
        let command = command.next_help_heading("RoPE: a context longer than trained");
        parameters::added(command, rope::parameters())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RopeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let values = parameters::values(matches, rope::parameters());
        Ok(RopeArgs(Flags { values, ..Flags::default() }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl RopeArgs {
    /// Returns the options for the method that the context needs.
    pub fn auto() -> Self {
        RopeArgs(Flags::method("auto"))
    }

    /// Returns whether no option is given.
    pub fn is_default(&self) -> bool {
        self.0 == Flags::default()
    }

    /// Returns whether the context rolls.
    pub fn rolls(&self) -> bool {
        self.0.rolls()
    }

    /// Returns the settings of these options.
    pub fn flags(&self) -> Flags {
        self.0.clone()
    }
}

pub fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("choose on or off".into()),
    }
}
