//! Errors of requests, in llama-server's format.

use std::time::Duration;

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use rope_cpu::{batch, generate, model, sample};
use serde_json::{Value, json};

use super::app::Longer;

/// An error response.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiError {
    pub status: StatusCode,
    /// Type of the error, under llama-server's name.
    pub kind: &'static str,
    /// The message: what is wrong, what is allowed and what to do.
    pub message: String,
    /// The wrong field of the request, if any.
    pub field: Option<String>,
    /// Additional fields of the error.
    pub details: Vec<(&'static str, Value)>,
    /// Seconds after which to try again.
    pub retry_after: Option<u64>,
}

impl ApiError {
    fn new(status: StatusCode, kind: &'static str, message: impl ToString) -> Self {
        let message = message.to_string();
        ApiError { status, kind, message, field: None, details: Vec::new(), retry_after: None }
    }

    /// Creates an error in a request.
    pub fn invalid(message: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// Creates an error for a field of a request.
    pub fn field(name: &str, expected: impl std::fmt::Display) -> Self {
        let error = Self::invalid(format_args!("\"{name}\": must be {expected}"));
        ApiError { field: Some(name.into()), ..error }
    }

    /// Creates an error for a prompt that exceeds the context. It proposes options with which the
    /// prompt fits.
    pub fn context_exceeded(tokens: usize, context: usize, longer: Option<&Longer>) -> Self {
        let with = longer.map_or("a larger context (-c)", |longer| &longer.text);
        let message = format!(
            "the request exceeds the available context size: the prompt has {tokens} tokens, the context \
             {context}; shorten the prompt, or restart the server with {with}"
        );
        let mut error = Self::new(StatusCode::BAD_REQUEST, "exceed_context_size_error", message);
        error.details = vec![("n_prompt_tokens", tokens.into()), ("n_ctx", context.into())];
        let options = longer.map(|longer| ("options", longer.options.clone().into()));
        error.details.extend(options);
        error
    }

    /// Creates an error for a missing or wrong API key.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "authentication_error", "Invalid API Key")
    }

    /// Creates an error for a forbidden request.
    pub fn forbidden(message: impl ToString) -> Self {
        Self::new(StatusCode::FORBIDDEN, "permission_error", message)
    }

    /// Creates an error for something that does not exist.
    pub fn not_found(message: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found_error", message)
    }

    /// Creates an error for a function that is missing or switched off.
    pub fn unsupported(message: impl ToString) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "not_supported_error", message)
    }

    /// Creates an error for a server that accepts no requests now.
    pub fn unavailable(message: impl ToString) -> Self {
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable_error", message);
        ApiError { retry_after: Some(1), ..error }
    }

    /// Creates an error for a body that has not arrived within `timeout`.
    pub fn late(timeout: Duration) -> Self {
        let seconds = timeout.as_secs();
        let message = format!("the body has not arrived within {seconds} s: send it faster");
        Self::new(StatusCode::REQUEST_TIMEOUT, "invalid_request_error", message)
    }

    /// Creates an error for work that has no room now.
    pub fn busy(message: impl ToString) -> Self {
        let error = Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", message);
        ApiError { retry_after: Some(1), ..error }
    }

    /// Creates an error for a failure of the server.
    pub fn internal(message: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", message)
    }

    /// Creates an error for a disk without room for a file.
    pub fn no_room(message: impl ToString) -> Self {
        Self::new(StatusCode::INSUFFICIENT_STORAGE, "server_error", message)
    }

    /// Creates an error for a message part that is not text, such as an image.
    pub fn no_media(kind: &str) -> Self {
        Self::invalid(format_args!("{kind} input is not supported: send text only"))
    }

    /// Returns the error in llama-server's form.
    pub fn to_json(&self) -> Value {
        let code = self.status.as_u16();
        let mut error = json!({ "code": code, "message": self.message, "type": self.kind });
        for (name, value) in &self.details {
            error[*name] = value.clone();
        }
        json!({ "error": error })
    }
}

impl ApiError {
    /// Returns a response with `body`. The error is attached, so that another interface can change
    /// its format.
    pub fn response(self, body: Value) -> Response {
        let mut response = (self.status, Json(body)).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert("retry-after", seconds.into());
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<&batch::Error> for ApiError {
    fn from(error: &batch::Error) -> Self {
        use batch::Error;
        use generate::Error as Generate;
        match error {
            Error::Generate(error) => match error {
                Generate::PromptTooLong { tokens, context } => {
                    Self::context_exceeded(*tokens, *context, None)
                }
                // A smaller or later request may succeed.
                Generate::Model(model::Error::PoolFull { .. } | model::Error::Memory(_)) => {
                    Self::unavailable(error)
                }
                Generate::Model(model::Error::Encoder { .. }) => Self::unsupported(error),
                Generate::Sample(sample::Error::Logit { .. } | sample::Error::Seed { .. })
                | Generate::Model(_) => Self::internal(error),
                // The request has a grammar that cannot be followed, or settings that exclude every
                // token.
                Generate::PromptEmpty | Generate::Sample(_) | Generate::Constraint(_) => {
                    Self::invalid(error)
                }
            },
            Error::NoSlot { .. } => Self::invalid(error),
            Error::SlotInUse(_) => Self::unavailable(error),
            Error::SlotOfOther(slot) => Self::forbidden(format_args!(
                "slot {slot} has tokens of another API key: use another slot, or start the server with \
                 --share-cache"
            )),
            Error::QueueFull { .. } => Self::busy(error),
            Error::Draft(_) => Self::internal(error),
            Error::Stopped => Self::unavailable("the server is stopping"),
        }
    }
}

impl From<batch::Error> for ApiError {
    fn from(error: batch::Error) -> Self {
        Self::from(&error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = self.to_json();
        self.response(body)
    }
}
