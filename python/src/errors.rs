//! Errors of the library as Python exceptions.

use std::{fmt::Display, io};

use pyo3::{
    PyErr, create_exception,
    exceptions::{
        PyException, PyFileNotFoundError, PyMemoryError, PyPermissionError, PyValueError,
    },
};
use rope_cpu::{batch, generate, gguf, model, runtime, settings};

create_exception!(
    rope_cpu,
    Error,
    PyException,
    "A model cannot be opened or computed. The message names the file, the tensor or the limit."
);

/// Returns the exception for an argument that is not valid.
pub fn invalid(error: impl Display) -> PyErr {
    PyValueError::new_err(with_keywords(&error.to_string()))
}

/// Returns the exception for a failure that is not an invalid argument.
pub fn failed(error: impl Display) -> PyErr {
    Error::new_err(with_keywords(&error.to_string()))
}

/// Returns the exception for an error of a model.
pub fn of_model(error: model::Error) -> PyErr {
    let message = with_keywords(&error.to_string());
    match error {
        model::Error::File(gguf::Error::Open { source, .. }) => match source.kind() {
            io::ErrorKind::NotFound => PyFileNotFoundError::new_err(message),
            io::ErrorKind::PermissionDenied => PyPermissionError::new_err(message),
            _ => Error::new_err(message),
        },
        model::Error::Rope(_)
        | model::Error::Token { .. }
        | model::Error::LearnedPositions { .. }
        | model::Error::TextTooLong { .. } => PyValueError::new_err(message),
        _ => Error::new_err(message),
    }
}

/// Returns the exception for a model that cannot be opened with some settings.
pub fn of_plan(error: runtime::Error) -> PyErr {
    match error {
        runtime::Error::Model(error) => of_model(error),
        runtime::Error::TooLarge(error) => PyMemoryError::new_err(with_keywords(&format!(
            "{error} To try anyway: memory_check=False"
        ))),
        error => invalid(error),
    }
}

/// Returns the exception for an error while generating.
fn of_generation(error: generate::Error) -> PyErr {
    match error {
        generate::Error::Model(error) => of_model(error),
        generate::Error::PromptEmpty => invalid(error),
        generate::Error::PromptTooLong { tokens, context } => invalid(format_args!(
            "the prompt of {tokens} tokens does not fit in the context of {context}: give the call or \
             Model.open a larger ctx"
        )),
        error => failed(error),
    }
}

/// Returns the exception for an answer that failed.
pub fn of_batch(error: batch::Error) -> PyErr {
    match error {
        batch::Error::Generate(error) => of_generation(error),
        batch::Error::Draft(error) => of_model(error),
        error => failed(error),
    }
}

/// Replaces the library's settings in a message by keyword arguments.
fn with_keywords(message: &str) -> String {
    let keyword = |setting: &str| match setting {
        "context" => Some("ctx".into()),
        "model" => Some("path".into()),
        "hub_endpoint" => Some("HF_ENDPOINT".into()),
        "hub_cache" => Some("HF_HUB_CACHE".into()),
        "hub_token" => Some("HF_TOKEN".into()),
        "offline" => Some("HF_HUB_OFFLINE".into()),
        "rope-cpu tokenize" => Some("Model.tokenize".into()),
        _ => None,
    };
    settings::renamed(message, keyword).into_owned()
}
