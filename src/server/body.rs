//! Reads request bodies within limits of time, size and total memory.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Request, State},
    http::StatusCode,
    middleware::Next,
    response::Response,
};
use tokio_stream::StreamExt;

use super::{error::ApiError, memory::Held, state::Server};

/// Maximum values in a body (numbers, texts, lists, objects), unless the context is larger.
const VALUES_MAX: usize = 1 << 20;

/// Memory of a parsed value in bytes, without the bytes of a text.
const VALUE_BYTES: usize = 128;

/// Maximum depth of lists and objects, as in serde_json.
const DEPTH_MAX: usize = 128;

/// Maximum size of a body without any context, in MiB.
const MEBIBYTES_MIN: usize = 4;

/// Bytes that each position of the context adds to the maximum size of a body. This is a generous
/// bound on the escaped text of a token.
const POSITION_BYTES: usize = 64;

/// Returns the maximum size of a body in bytes. Without `--body-max` it depends on the context.
pub fn largest(given: Option<usize>, context: usize) -> usize {
    given.unwrap_or_else(|| {
        let text = context.saturating_mul(POSITION_BYTES).div_ceil(1 << 20);
        text.saturating_add(MEBIBYTES_MIN).saturating_mul(1 << 20)
    })
}

/// Reads the body of a request before it is handled.
pub async fn read(
    State(server): State<Arc<Server>>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let timeout = server.options.listen.timeout;
    let mut held = server.memory.hold(server.memory_max());
    let body = tokio::time::timeout(timeout, collect(&server, body, &mut held)).await;
    let body = body.map_err(|_| ApiError::late(timeout))??;
    Ok(next.run(Request::from_parts(parts, Body::from(body))).await)
}

async fn collect(server: &Server, body: Body, held: &mut Held) -> Result<Vec<u8>, ApiError> {
    let body_max = server.body_max();
    let values_max = VALUES_MAX.max(2 * server.context());
    let (mut bytes, mut outline) = (Vec::new(), Outline::default());
    let mut parts = body.into_data_stream();
    while let Some(part) = parts.next().await {
        let part =
            part.map_err(|e| ApiError::invalid(format_args!("the body is incomplete: {e}")))?;
        if bytes.len() + part.len() > body_max {
            return Err(too_large(body_max));
        }
        let before = outline.values;
        outline.push(&part);
        if outline.depth_max > DEPTH_MAX {
            return Err(ApiError::invalid(format_args!(
                "the body is not valid JSON for this server: its lists and objects are nested deeper than \
                 {DEPTH_MAX}"
            )));
        }
        if outline.values > values_max {
            return Err(ApiError {
                status: StatusCode::PAYLOAD_TOO_LARGE,
                ..ApiError::invalid(format_args!(
                    "the body has too many values: at most {values_max} numbers, texts, lists and \
                     objects are permitted; divide the request"
                ))
            });
        }
        held.add(part.len() + (outline.values - before) * VALUE_BYTES)?;
        bytes.try_reserve(part.len()).map_err(|_| {
            ApiError::unavailable("the system refused memory for the body: try again later")
        })?;
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

/// Returns the error for a body that is too large.
pub fn too_large(body_max: usize) -> ApiError {
    ApiError {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        ..ApiError::invalid(format_args!(
            "the body is too large: at most {} MiB are permitted (--body-max)",
            body_max >> 20
        ))
    }
}

/// Counts the values in a JSON text and their depth, before parsing. A list of zeros, for example,
/// takes fifty times the memory of its text.
#[derive(Debug, Default)]
struct Outline {
    values: usize,
    depth: usize,
    depth_max: usize,
    in_text: bool,
    escaped: bool,
}

impl Outline {
    /// Continues with a part of the text.
    fn push(&mut self, part: &[u8]) {
        for byte in part {
            match (self.in_text, byte) {
                (true, _) if self.escaped => self.escaped = false,
                (true, b'\\') => self.escaped = true,
                (true, b'"') => self.in_text = false,
                (true, _) => {}
                (false, b'"') => self.in_text = true,
                (false, b',') => self.values += 1,
                (false, b'[' | b'{') => {
                    self.values += 1;
                    self.depth += 1;
                    self.depth_max = self.depth_max.max(self.depth);
                }
                (false, b']' | b'}') => self.depth = self.depth.saturating_sub(1),
                (false, _) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_however_the_text_is_cut() {
        let text = br#"{"a,[\"{": [1, 2, {"\\": []}], "b": "[[[,"}"#;
        for cut in 0..text.len() {
            let mut outline = Outline::default();
            outline.push(&text[..cut]);
            outline.push(&text[cut..]);
            assert_eq!((outline.values, outline.depth_max, outline.depth), (7, 4, 0), "{cut}");
        }
    }

    #[test]
    fn the_largest_body_follows_from_the_context() {
        assert_eq!(largest(None, 0), 4 << 20);
        assert_eq!(largest(None, 256), 5 << 20);
        assert_eq!(largest(None, 131_072), 12 << 20);
        assert!(largest(None, usize::MAX) > 1 << 50);
        assert_eq!(largest(Some(1 << 20), 131_072), 1 << 20);
    }
}
