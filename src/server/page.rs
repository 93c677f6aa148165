//! The web page: files in memory, which request nothing from elsewhere.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Path, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
            REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::{IntoResponse, Response},
    routing::get,
};
use twox_hash::XxHash3_128;

use super::{app::Server, error::ApiError};

/// The folder of the page's files.
pub const FOLDER: &str = "/page/";

/// The scripts, styles and pictures are the server's own, and so is everything that they request. Text
/// becomes elements only after it was sanitised.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types dompurify";

macro_rules! files {
    ($($name:literal,)*) => {
        &[$(($name, include_str!(concat!("page/", $name))),)*]
    };
}

/// The files, `index.html` first.
const FILES: &[(&str, &str)] = files![
    "index.html",
    "answer.js",
    "app.js",
    "base.css",
    "chart.js",
    "chat.css",
    "chat.js",
    "composer.js",
    "connection.js",
    "dom.js",
    "gauge.js",
    "icon.svg",
    "imported.js",
    "keys.js",
    "markdown.js",
    "math.css",
    "math.js",
    "messages.js",
    "panel.css",
    "panel.js",
    "server.js",
    "settings.js",
    "sidebar.js",
    "store.js",
    "touch.css",
    "tree.js",
    "vendor-licenses.txt",
    "vendor-math.js",
    "vendor.js",
];

/// Returns the routes.
pub fn routes() -> Router<Arc<Server>> {
    Router::new().route("/", get(index)).route("/page/{name}", get(file))
}

async fn index(state: State<Arc<Server>>, headers: HeaderMap) -> Result<Response, ApiError> {
    file(state, Path("index.html".into()), headers).await
}

async fn file(
    State(server): State<Arc<Server>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    if !server.options.shows_page {
        return Err(ApiError::not_found("the server was started without its web page"));
    }
    let found = FILES.iter().find(|(known, _)| *known == name);
    let (_, text) = found.ok_or_else(|| ApiError::not_found("File Not Found"))?;
    // Browsers ask each time, and load what another version of the program has changed.
    let tag = format!("\"{:032x}\"", XxHash3_128::oneshot(text.as_bytes()));
    let known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut response = match known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => text.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, content_type(&name)),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "html")) => "text/html; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}
