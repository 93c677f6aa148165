//! `/pdf`: extracts the text of a PDF for the web page, with the user's pdftotext, if it is
//! installed.
//!
//! pdftotext runs without a shell, on one PDF at a time, with limits of time and output. It reads
//! the PDF from a temporary file, because not every version reads standard input.

use std::{
    env,
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    path::PathBuf,
    process::{self, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use axum::{Json, Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{
    error::ApiError,
    read::{Failure, parse},
    state::Server,
};

/// Maximum bytes of a PDF's text, as for a text file on the page.
const TEXT_MAX: u64 = 8 << 20;

/// Maximum time to extract a PDF's text.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Held while a PDF is being read, so that several cannot take all processors and memory.
static READING: Mutex<()> = Mutex::new(());

crate::object! {
    /// A request of `/pdf`.
    struct Pdf {
        /// The file in base64.
        data: Option<String>,
    }
}

/// Returns the route.
pub fn routes() -> Router<Arc<Server>> {
    Router::new().route("/pdf", post(pdf))
}

async fn pdf(State(server): State<Arc<Server>>, body: Bytes) -> Result<Json<Value>, ApiError> {
    if server.options.listen.no_ui {
        return Err(ApiError::not_found("the server was started without its web page"));
    }
    let request: Pdf = parse(&body)?;
    let data = request.data.ok_or_else(|| Failure::missing("data", "a PDF in base64"))?;
    let file = BASE64_STANDARD.decode(data).ok().filter(|file| file.starts_with(b"%PDF-"));
    let file = file.ok_or_else(|| ApiError::field("data", "a PDF in base64"))?;
    // A separate thread, since pdftotext may use its full time.
    let (sender, read) = oneshot::channel();
    let work = move || {
        let read = match READING.try_lock() {
            Ok(_one) => text(Command::new("pdftotext"), &file, TIME_MAX, TEXT_MAX),
            Err(_) => Err(Error::Busy),
        };
        // Fails if the client has closed its connection.
        let _ = sender.send(read);
    };
    thread::Builder::new().name("pdf".into()).spawn(work).map_err(ApiError::unavailable)?;
    let text = read.await.map_err(ApiError::internal)??;
    Ok(Json(json!({ "text": text })))
}

/// Why a PDF has no text here.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(
        "pdftotext was not found: install it on the server's machine (poppler-utils), or convert \
         the PDF to text"
    )]
    Missing,
    #[error("another PDF is being read: try again when it is done")]
    Busy,
    #[error("pdftotext cannot run: {0}")]
    Run(#[from] io::Error),
    #[error(
        "pdftotext refused the PDF ({0}): it may be damaged, or need a password; convert it to text"
    )]
    Refused(ExitStatus),
    #[error("pdftotext took more than {} s: attach a part of the PDF", .0.as_secs())]
    Late(Duration),
    #[error("the PDF has more than {0} bytes of text: attach a part of it")]
    Long(u64),
    #[error("the text of the PDF is not UTF-8: convert it to text")]
    Encoding,
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error {
            Error::Missing => ApiError::unsupported(error),
            Error::Busy => ApiError::busy(error),
            Error::Run(_) => ApiError::internal(error),
            Error::Refused(_) | Error::Late(_) | Error::Encoding => ApiError::invalid(error),
            Error::Long(_) => {
                ApiError { status: StatusCode::PAYLOAD_TOO_LARGE, ..ApiError::invalid(error) }
            }
        }
    }
}

/// Returns the text that `program` writes for a PDF. Kills the program if it exceeds a limit.
fn text(
    mut program: Command,
    pdf: &[u8],
    time_max: Duration,
    text_max: u64,
) -> Result<String, Error> {
    let file = TemporaryFile::new(pdf)?;
    program.args(["-q", "-enc", "UTF-8", "-nopgbrk"]).arg(&file.0).arg("-");
    program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = program.spawn().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Error::Missing,
        _ => Error::Run(e),
    })?;
    let output = child.stdout.take();
    let (sender, read) = mpsc::channel();
    let reading = thread::Builder::new().name("pdf text".into()).spawn(move || {
        let mut text = Vec::new();
        let result = match output {
            Some(output) => output.take(text_max + 1).read_to_end(&mut text).map(|_| text),
            None => Ok(text),
        };
        // Fails after the time limit.
        let _ = sender.send(result);
    });
    let read = reading.map(|_| read.recv_timeout(time_max));
    // A program that has closed its output has finished. It must not outlive the request.
    let in_time = matches!(&read, Ok(Ok(Ok(text))) if text.len() as u64 <= text_max);
    if !in_time {
        let _ = child.kill();
    }
    let status = child.wait()?;
    let text = read?.map_err(|_| Error::Late(time_max))??;
    if text.len() as u64 > text_max {
        return Err(Error::Long(text_max));
    }
    if !status.success() {
        return Err(Error::Refused(status));
    }
    String::from_utf8(text).map_err(|_| Error::Encoding)
}

/// A file that only this user can read, until the value is dropped.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(bytes: &[u8]) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let path = env::temp_dir().join(format!("rope-cpu-{}-{number}.pdf", process::id()));
        let mut options = OpenOptions::new();
        // Never use a file that somebody else has put there.
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&path)?;
        let temporary = TemporaryFile(path);
        file.write_all(bytes)?;
        Ok(temporary)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// Runs a script instead of pdftotext. Returns its result and the path of its file.
    fn run(script: &str, time_max: Duration) -> (Result<String, Error>, PathBuf) {
        let seen = tempfile::NamedTempFile::new().unwrap();
        let mut program = Command::new("sh");
        program.arg("-c").arg(format!("printf %s \"$4\" > '{}'; {script}", seen.path().display()));
        let result = text(program, b"%PDF-1.7 its bytes", time_max, 1000);
        (result, fs::read_to_string(seen.path()).unwrap().into())
    }

    #[test]
    fn the_text_is_what_the_program_writes() {
        // The shell takes the first argument as its name.
        let (text, file) = run("printf '%s|' \"$@\"; cat \"$4\"", TIME_MAX);
        let file_name = file.display();
        let expected = format!("-enc|UTF-8|-nopgbrk|{file_name}|-|%PDF-1.7 its bytes");
        assert_eq!(text.unwrap(), expected);
        assert!(file.is_absolute() && !file.exists(), "{file_name}");
    }

    #[test]
    fn limits_end_the_program() {
        for (script, time_max, reason) in [
            ("exec sleep 1000", Duration::from_millis(200), "more than 0 s"),
            ("exec yes", TIME_MAX, "more than 1000 bytes"),
            ("exit 3", TIME_MAX, "exit status: 3"),
            (r"printf '\377'", TIME_MAX, "not UTF-8"),
        ] {
            let (text, file) = run(script, time_max);
            let error = text.unwrap_err().to_string();
            assert!(error.contains(reason), "{script}: {error}");
            assert!(!file.exists(), "{script}");
        }
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = text(Command::new("/nothing/pdftotext"), b"", TIME_MAX, 1).unwrap_err();
        assert!(error.to_string().contains("install it"), "{error}");
        assert_eq!(ApiError::from(error).status, StatusCode::NOT_IMPLEMENTED);
    }
}
