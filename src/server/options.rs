//! The options of a server, named as llama-server names them.
//!
//! Each field is an option: its documentation is the help, and its type is what handlers read. The
//! command line of `serve` has the same structs.

mod listen;
mod requests;
mod shelved;

pub use listen::Listen;
pub use requests::Requests;
pub use shelved::Shelved;

/// The options of a server that do not depend on the model.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address, access to it, and what it serves.
    pub listen: Listen,
    /// The answers to requests.
    pub requests: Requests,
    /// The models.
    pub shelved: Shelved,
    /// API keys of the options and of their file; empty if requests need no key.
    pub keys: Vec<String>,
    /// Whether prompts are written to the log.
    pub logs_prompts: bool,
}
