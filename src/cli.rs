//! The command line: one file per subcommand.

pub mod inspect;
pub mod tokenize;
