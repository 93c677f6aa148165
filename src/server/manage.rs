//! The right to change which models there are, and which are open.
//!
//! Who may ask a model may not delete it. With `--manage-key` the right is a key; without it, it
//! belongs to programs on this machine, as long as no one else can reach the server.

use std::sync::Arc;

use axum::{
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts},
};
use subtle::ConstantTimeEq;

use super::{
    error::ApiError,
    http::key,
    options::Options,
    origins,
    read::{Parsed, Read},
    state::Server,
};

const X_MANAGE_KEY: HeaderName = HeaderName::from_static("x-manage-key");

/// Headers of proxies, whose clients are elsewhere.
const FORWARDED: [HeaderName; 3] = [
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-real-ip"),
];

/// Whether a request may manage models, as an extension of the request.
#[derive(Clone, Copy, Debug)]
pub struct Right(pub bool);

/// Extractor that refuses requests without the right, and those to a server of one model.
pub struct Manager;

impl FromRequestParts<Arc<Server>> for Manager {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, server: &Arc<Server>) -> Result<Self, ApiError> {
        check(parts)?;
        server.models.shelf().map(|_| Manager)
    }
}

/// Extractor of the body of a request that changes models: see [`Manager`].
pub struct Managed<T>(pub T);

impl<T: Read> FromRequest<Arc<Server>> for Managed<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, server: &Arc<Server>) -> Result<Self, ApiError> {
        let (mut parts, body) = request.into_parts();
        Manager::from_request_parts(&mut parts, server).await?;
        let Parsed(fields) = Parsed::from_request(Request::from_parts(parts, body), server).await?;
        Ok(Managed(fields))
    }
}

crate::object! {
    /// The fields with the name of a model.
    pub struct Named {
        /// The name of the model.
        model: Option<String>,
        /// An older name of `model`.
        name: Option<String>,
    }
}

impl Named {
    /// Returns the name, if one is given.
    pub fn optional(self) -> Option<String> {
        self.model.or(self.name)
    }

    /// Returns the name.
    ///
    /// # Errors
    /// If none is given.
    pub fn required(self) -> Result<String, ApiError> {
        self.optional().ok_or_else(|| ApiError::field("model", "given"))
    }
}

/// Checks that a request may manage models.
///
/// # Errors
/// If it may not, with how to permit it.
pub fn check(parts: &Parts) -> Result<(), ApiError> {
    match parts.extensions.get() {
        Some(Right(true)) => Ok(()),
        _ => Err(ApiError::forbidden(
            "this request may not load, unload, pull, copy or delete models: start the server with \
             --manage-key KEY, and send the key as \"Authorization: Bearer KEY\" or \"X-Manage-Key: KEY\"; \
             without one, only programs on a machine that serves itself alone may",
        )),
    }
}

/// Returns whether a request with these headers may manage models.
pub fn right(headers: &HeaderMap, options: &Options) -> Right {
    Right(match &options.shelved.manage_key {
        Some(_) => has_key(headers, options),
        None => {
            let local = options.listen.host.iter().all(|host| host.is_loopback());
            let forwarded = FORWARDED.iter().any(|name| headers.contains_key(name));
            local && !forwarded && origins::is_local(headers)
        }
    })
}

/// Returns whether a request has the key of `--manage-key`, which also counts as an API key.
pub fn has_key(headers: &HeaderMap, options: &Options) -> bool {
    let Some(expected) = &options.shelved.manage_key else { return false };
    let given = headers.get(X_MANAGE_KEY).map(HeaderValue::as_bytes).or_else(|| key(headers));
    given.is_some_and(|given| expected.as_bytes().ct_eq(given).into())
}
