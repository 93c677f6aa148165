//! The extension module of the Python package `rope_cpu`. The package's classes are in Python and
//! call these: arguments arrive complete and in their final types.

mod batch;
mod chat;
mod errors;
mod generation;
mod hub;
mod loaded;
mod measure;
mod model;
mod options;
mod process;
mod request;
mod rope;

use pyo3::prelude::*;

/// The native part of rope_cpu.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::{
        chat::{Conversation, Parser},
        errors::Error,
        generation::{Outcome, Stream},
        hub::download,
        model::Model,
        rope::{Plan, rope_settings},
    };

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
