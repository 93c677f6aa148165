//! The web page. Its files are part of the program, and load nothing from elsewhere.

use std::{
    io::Write,
    sync::{Arc, OnceLock},
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{
            ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY,
            CONTENT_TYPE, ETAG, IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::{IntoResponse, Response},
    routing::get,
};
use flate2::{Compression, write::GzEncoder};
use twox_hash::XxHash3_128;

use super::{error::ApiError, state::Server};

/// The folder of the page's files.
pub const FOLDER: &str = "/page/";

/// The page loads scripts, styles and images only from the server, and sends requests only to it.
/// Text is sanitised before it becomes elements.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types dompurify";

struct File {
    name: &'static str,
    text: &'static str,
    /// The text in gzip, compressed when a client first accepts it. So the program contains each
    /// text only once.
    gzip: OnceLock<Option<Bytes>>,
}

macro_rules! files {
    ($($name:literal,)*) => {
        /// The files, `index.html` first.
        static FILES: [File; [$($name),*].len()] =
            [$(File { name: $name, text: include_str!(concat!("page/", $name)), gzip: OnceLock::new() },)*];
    };
}

files! {
    "index.html",
    "address.js",
    "answer.js",
    "app.js",
    "attachments.js",
    "base.css",
    "chart.js",
    "chat.css",
    "chat.js",
    "composer.js",
    "connection.js",
    "decode.js",
    "dom.js",
    "drafts.js",
    "fit.js",
    "gauge.js",
    "icon.svg",
    "imported.js",
    "keys.js",
    "lexer.js",
    "markdown.js",
    "math.css",
    "math.js",
    "messages.js",
    "notice.js",
    "panel.css",
    "panel.js",
    "pdf.js",
    "picker.js",
    "pull.js",
    "search.js",
    "server.js",
    "settings.js",
    "sidebar.js",
    "store.js",
    "table.js",
    "tabs.js",
    "touch.css",
    "tree.js",
    "vendor-licenses.txt",
    "vendor-math.js",
    "vendor.js",
}

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
    if server.options.listen.no_ui {
        return Err(ApiError::not_found("the server was started without its web page"));
    }
    let found = FILES.iter().find(|file| file.name == name);
    let file = found.ok_or_else(|| ApiError::not_found("File Not Found"))?;
    let gzip = if accepts_gzip(&headers) { file.gzip() } else { None };
    // Browsers revalidate each time, so they load files that a new version has changed. Each
    // encoding has a separate tag.
    let suffix = if gzip.is_some() { "-gzip" } else { "" };
    let tag = format!("\"{:032x}{suffix}\"", XxHash3_128::oneshot(file.text.as_bytes()));
    let known = headers.get(IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let encoded = gzip.is_some() && !known;
    let mut response = match (known, gzip) {
        (true, _) => StatusCode::NOT_MODIFIED.into_response(),
        (false, Some(gzip)) => gzip.into_response(),
        (false, None) => file.text.into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, content_type(&name)),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (VARY, "accept-encoding"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if encoded {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}

impl File {
    /// Returns the text in gzip.
    fn gzip(&self) -> Option<Bytes> {
        let compressed = self.gzip.get_or_init(|| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(self.text.as_bytes()).ok()?;
            encoder.finish().ok().map(Bytes::from)
        });
        compressed.clone()
    }
}

/// Returns whether `Accept-Encoding` allows gzip.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
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
