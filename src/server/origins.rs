//! Checks which web pages may send requests.
//!
//! A browser sends many of a page's requests without a preflight, and only hides the answer from
//! the page. So requests with effects are refused early, by headers that pages cannot set.

use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};

use super::error::ApiError;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

/// Returns whether `--cors-origins` allows pages of an origin.
pub fn permitted(origin: &str, origins: &[String]) -> bool {
    origins.iter().any(|permitted| match &permitted[..] {
        "*" => true,
        "localhost" => of_this_machine(origin),
        permitted => permitted == origin,
    })
}

/// Refuses requests from pages unless they are the server's pages or allowed. Also refuses bodies
/// in formats that browsers send without a preflight. Anyone may read public paths.
///
/// # Errors
/// If it is refused.
pub fn check(
    method: &Method,
    headers: &HeaderMap,
    public: bool,
    origins: &[String],
) -> Result<(), ApiError> {
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    if reads && public {
        return Ok(());
    }
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let (origin, site) = (text(header::ORIGIN), text(SEC_FETCH_SITE));
    let foreign = match (origin, site) {
        // The browser compares the origins, so a proxy may change the Host header.
        (_, Some("same-origin" | "none")) => false,
        (Some(origin), _) => {
            !permitted(origin, origins) && !is_own(origin, text(header::HOST).unwrap_or_default())
        }
        (None, Some("cross-site")) => !permitted("", origins),
        (None, _) => false,
    };
    if foreign {
        let origin = origin.unwrap_or("another site");
        return Err(ApiError::forbidden(format_args!(
            "web pages of {origin} may not send requests: start the server with --cors-origins to \
             permit them"
        )));
    }
    let of_browser = origin.is_some() || site.is_some() || headers.contains_key(SEC_FETCH_MODE);
    if of_browser && has_body(headers) && !is_json(text(header::CONTENT_TYPE).unwrap_or_default()) {
        return Err(ApiError {
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            ..ApiError::invalid(
                "the Content-Type of a request from a web page must be application/json",
            )
        });
    }
    Ok(())
}

/// Returns whether a request is from a program, or from a page of this server.
pub fn is_local(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    match (text(header::ORIGIN), text(SEC_FETCH_SITE)) {
        (_, Some(site)) => matches!(site, "same-origin" | "none"),
        (Some(origin), None) => is_own(origin, text(header::HOST).unwrap_or_default()),
        (None, None) => true,
    }
}

/// Returns whether an origin is the server itself, under the name in the Host header.
fn is_own(origin: &str, host: &str) -> bool {
    let authority = origin.split_once("://").map(|(_, authority)| authority);
    authority.is_some_and(|authority| !host.is_empty() && authority.eq_ignore_ascii_case(host))
}

/// Returns whether a page is from this machine, on any port.
fn of_this_machine(origin: &str) -> bool {
    let host = origin.parse::<Uri>().ok().and_then(|uri| Some(uri.authority()?.host().to_string()));
    matches!(host.as_deref(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

fn has_body(headers: &HeaderMap) -> bool {
    let empty = headers.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0");
    !empty || headers.contains_key(header::TRANSFER_ENCODING)
}

fn is_json(content_type: &str) -> bool {
    let name = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    name == "application/json" || name.ends_with("+json")
}
