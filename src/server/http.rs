//! HTTP routes, and the checks before a request is handled.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use axum::{
    Json, Router,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts},
    middleware::{Next, from_fn, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::{Value, json};
use subtle::{ConditionallySelectable, ConstantTimeEq};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::{
    anthropic, body, embeddings,
    error::ApiError,
    log::{REQUEST_ID, log},
    manage, models, native, ollama, openai,
    options::Options,
    origins,
    owner::Owner,
    page, pdf, rerank,
    state::Server,
    work,
};

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Paths that need no key.
const PUBLIC: [&str; 5] = ["/health", "/v1/health", "/livez", "/readyz", "/"];

/// Returns all routes, with the checks before them.
pub fn router(server: Arc<Server>) -> Router {
    let permitted_origins = server.options.listen.cors_origins.clone();
    let permitted = move |origin: &HeaderValue, _: &Parts| {
        origin.to_str().is_ok_and(|origin| origins::permitted(origin, &permitted_origins))
    };
    let cors = CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(permitted))
        .allow_methods([Method::GET, Method::POST])
        // Clients add headers, such as x-stainless-lang and anthropic-version.
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([REQUEST_ID]);
    let of_a_model = Router::new()
        .merge(native::routes())
        .merge(openai::routes())
        .merge(embeddings::routes())
        .merge(rerank::routes())
        .merge(anthropic::routes())
        .merge(ollama::routes())
        .route_layer(from_fn_with_state(server.clone(), models::choose));
    Router::new()
        .route("/health", get(health))
        .route("/v1/health", get(health))
        .route("/livez", get(alive))
        .route("/readyz", get(ready))
        .merge(of_a_model)
        .merge(native::model_routes())
        .merge(openai::model_routes())
        .merge(ollama::model_routes())
        .merge(page::routes())
        .merge(pdf::routes())
        .fallback(missing)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(server.clone(), work::handle))
        .layer(from_fn_with_state(server.clone(), body::read))
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(server.clone(), check))
        .layer(from_fn(form_error))
        .layer(cors)
        .layer(from_fn_with_state(server.clone(), log))
        .with_state(server)
}

async fn health(State(server): State<Arc<Server>>) -> Result<Json<Value>, ApiError> {
    server.models.ready()?;
    Ok(Json(json!({ "status": "ok" })))
}

/// Answers `/livez`. It fails if no model can be opened any more. Restart the process then.
async fn alive(State(server): State<Arc<Server>>) -> Result<Json<Value>, ApiError> {
    match server.models.alive() {
        true => Ok(Json(json!({ "status": "ok" }))),
        false => Err(ApiError::unavailable("the thread that opens models has ended")),
    }
}

async fn ready(State(server): State<Arc<Server>>) -> Result<Json<Value>, ApiError> {
    server.models.ready()?;
    match server.stopping.load(Relaxed) {
        true => Err(ApiError::unavailable("the server is stopping")),
        false => Ok(Json(json!({ "status": "ok" }))),
    }
}

async fn missing() -> ApiError {
    ApiError::not_found("File Not Found")
}

async fn wrong_method(method: Method) -> ApiError {
    let message = format_args!("{method} is not allowed here").to_string();
    ApiError { status: StatusCode::METHOD_NOT_ALLOWED, ..ApiError::invalid(message) }
}

/// Returns the form of errors of a path's interface.
fn form(path: &str) -> fn(&ApiError) -> Value {
    match path {
        path if path.starts_with("/v1/messages") => anthropic::error,
        path if path.starts_with("/api/") => ollama::error,
        path if path.starts_with("/v1/") => openai::error,
        _ => ApiError::to_json,
    }
}

/// Returns an error in the form of a path's interface.
pub fn error_body(path: &str, error: &ApiError) -> Value {
    form(path)(error)
}

/// Converts an error to the format of the path's interface.
async fn form_error(request: Request, next: Next) -> Response {
    let form = form(request.uri().path());
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<ApiError>() {
        Some(error) => {
            let body = form(&error);
            let mut formed = error.response(body);
            if let Some(close) = response.headers_mut().remove(header::CONNECTION) {
                formed.headers_mut().insert(header::CONNECTION, close);
            }
            formed
        }
        None => response,
    }
}

/// Checks the host, origin, key and size of a request. Refuses it while the server is stopping.
async fn check(
    State(server): State<Arc<Server>>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let path = request.uri().path();
    let headers = request.headers();
    if !host_permitted(host(headers)?, &server.options.listen.allowed_hosts) {
        return Err(ApiError::forbidden(match name(host(headers)?) {
            Some(name) => format!(
                "the Host header names {name}, another host: start the server with --allowed-hosts \
                 {name}, or set ROPE_CPU_ALLOWED_HOSTS={name}, to permit it"
            ),
            None => "the Host header names no host: send the server's address or name".into(),
        }));
    }
    let public = PUBLIC.contains(&path) || path.starts_with(page::FOLDER);
    origins::check(request.method(), headers, public, &server.options.listen.cors_origins)?;
    let owner = owner(headers, &server.options);
    if !public && owner.is_none() {
        return Err(ApiError::unauthorized());
    }
    let right = manage::right(headers, &server.options);
    if server.stopping.load(Relaxed) && request.method() == Method::POST {
        let mut response = ApiError::unavailable("the server is stopping").into_response();
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        return Ok(response);
    }
    // If the length is known, check it without reading the body.
    let body_max = server.body_max();
    let length =
        headers.get(header::CONTENT_LENGTH).and_then(|text| text.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: u64| length > body_max as u64) {
        return Err(body::too_large(body_max));
    }
    request.extensions_mut().insert(owner.unwrap_or_default());
    request.extensions_mut().insert(right);
    Ok(next.run(request).await)
}

/// Returns the Host header; `None` for a request of HTTP/1.0 without one.
///
/// # Errors
/// If there are several, or one is not ASCII: a proxy may interpret them differently.
fn host(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next().map(HeaderValue::to_str).transpose();
    match (host, hosts.next()) {
        (Ok(host), None) => Ok(host),
        _ => Err(ApiError::invalid("the Host header must be given once, in ASCII")),
    }
}

/// Returns the name in a Host header without its port, if it is a name of DNS.
fn name(host: Option<&str>) -> Option<&str> {
    let name = host?.split(':').next()?;
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (!name.is_empty() && name.len() <= 253 && name.bytes().all(valid)).then_some(name)
}

/// Returns whether a request is addressed to this server: by an address, localhost or an allowed
/// name. This blocks pages of other names that resolve to this address (DNS rebinding).
fn host_permitted(host: Option<&str>, permitted: &[String]) -> bool {
    let Some(host) = host else { return true };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let is_address = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<Ipv4Addr>().is_ok(),
    };
    is_address
        || name.eq_ignore_ascii_case("localhost")
        || permitted.iter().any(|other| other == "*" || other.eq_ignore_ascii_case(name))
}

/// Returns the key of a request. Keys are bytes, since they may have any characters.
pub fn key(headers: &HeaderMap) -> Option<&[u8]> {
    let bytes = |name: HeaderName| headers.get(name).map(HeaderValue::as_bytes);
    let bearer = bytes(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.split_at_checked(b"Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then_some(key)
    });
    bearer.or_else(|| bytes(X_API_KEY))
}

/// Returns the owner of a request's tokens; `None` without a valid key. The time does not depend on
/// how many characters match.
fn owner(headers: &HeaderMap, options: &Options) -> Option<Owner> {
    let keys = &options.keys;
    if keys.is_empty() {
        return Some(Owner::default());
    }
    let given = key(headers).unwrap_or_default();
    let mut found = u64::MAX;
    for (key, index) in keys.iter().zip(0..) {
        found.conditional_assign(&index, key.as_bytes().ct_eq(given));
    }
    let found = usize::try_from(found).ok().and_then(|index| keys.get(index));
    let manager = options.shelved.manage_key.as_ref().filter(|_| manage::has_key(headers, options));
    let key = found.or(manager)?;
    let is_shared = options.requests.share_cache || keys.iter().all(|other| other == key);
    Some(if is_shared { Owner::default() } else { Owner::of_key(key) })
}
