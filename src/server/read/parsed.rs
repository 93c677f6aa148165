//! The body of a request as an argument of its handler.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
};

use super::{Read, parse};
use crate::server::error::ApiError;

/// Extractor of a body in the form of `T`.
pub struct Parsed<T>(pub T);

impl<T: Read, S: Send + Sync> FromRequest<S> for Parsed<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let body = Bytes::from_request(request, state).await.map_err(ApiError::invalid)?;
        parse(&body).map(Parsed)
    }
}
