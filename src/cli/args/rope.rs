//! The options of RoPE.

use super::parameters::{Group, Options};
use rope_cpu::{
    rope::{self, Flags},
    settings::{Parameter, Values},
};

/// The options that select a RoPE method and its parameters.
pub type RopeArgs = Options<Rope>;

/// The group of the settings of RoPE.
#[derive(Clone, Debug, Default)]
pub struct Rope;

impl Group for Rope {
    const HEADING: Option<&'static str> = Some("RoPE: a context longer than trained");

    fn parameters() -> impl Iterator<Item = &'static Parameter> {
        rope::parameters()
    }
}

impl RopeArgs {
    /// Returns the options for the method that the context needs.
    pub fn auto() -> Self {
        let mut auto = Self::default();
        auto.values = Flags::method("auto").values;
        auto
    }

    /// Returns whether no option is given.
    pub fn is_default(&self) -> bool {
        self.values == Values::default()
    }

    /// Returns whether the context rolls.
    pub fn rolls(&self) -> bool {
        self.flags().rolls()
    }

    /// Returns the settings of these options.
    pub fn flags(&self) -> Flags {
        Flags { values: self.values.clone(), ..Flags::default() }
    }
}
