//! A server that imitates the hub: it lists the files of repositories, and redirects to another host for
//! their contents.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, ErrorKind, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::Duration,
};

use sha1::Sha1;
use sha2::{Digest, Sha256};

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// The files and the behaviour of the server.
#[derive(Default)]
pub struct State {
    /// Files by USER/MODEL and name, and whether they are large, which another host serves.
    files: HashMap<(String, String), (Vec<u8>, bool)>,
    /// The required token, if any.
    pub token: Option<String>,
    /// The answer that replaces the listing.
    pub listing: Option<String>,
    /// The status of every answer of the hub.
    pub status: Option<u16>,
    /// The numbers of content bytes after which the next connections break.
    pub breaks: Vec<usize>,
    /// Whether a range request is answered with the whole file.
    pub no_ranges: bool,
    /// The time between two pieces of a large file, each of 64 KiB.
    pub pace: Option<Duration>,
    /// The size that the listing gives every file.
    pub size: Option<u64>,
    /// Whether the last byte of large files is wrong.
    pub garbled: bool,
    /// The requests: `hub GET /path` or `cdn GET /path bytes=5-`.
    log: Vec<String>,
}

pub struct Server {
    state: Arc<Mutex<State>>,
    hub: SocketAddr,
}

impl Server {
    pub fn start() -> Self {
        let state = Arc::new(Mutex::new(State::default()));
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let [hub, cdn] = [listen(), listen()];
        let address = hub.local_addr().unwrap();
        let cdn_port = cdn.local_addr().unwrap().port();
        for (listener, is_hub) in [(hub, true), (cdn, false)] {
            let state = state.clone();
            // Ends with the test.
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let state = state.clone();
                    thread::spawn(move || {
                        let Ok(request) = Request::read(&stream) else { return };
                        let mut state = state.lock().unwrap();
                        let answer = match is_hub {
                            true => state.hub(request, cdn_port),
                            false => state.cdn(request),
                        };
                        drop(state);
                        let _ = answer.write(stream);
                    });
                }
            });
        }
        Server { state, hub: address }
    }

    /// Returns the value for HF_ENDPOINT.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.hub)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Returns the requests since the last call.
    pub fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.state().log)
    }
}

impl State {
    pub fn add(&mut self, repo: &str, name: &str, bytes: &[u8], large: bool) {
        self.files.insert((repo.into(), name.into()), (bytes.to_vec(), large));
    }

    fn hub(&mut self, request: Request, cdn_port: u16) -> Answer {
        let Request { path, headers } = request;
        self.log.push(format!("hub GET {path}"));
        let given = headers.get("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let refused = self.token.as_deref().is_some_and(|token| given != Some(token));
        if let Some(status) = self.status.or(refused.then_some(401)) {
            return answer(status, &[], b"{\"error\":\"no\"}", usize::MAX);
        }
        if let Some(rest) = path.strip_prefix("/api/models/") {
            let Some(repo) = rest.strip_suffix("/revision/main?blobs=true") else {
                return answer(404, &[], b"", usize::MAX);
            };
            let mut siblings: Vec<_> = self.files.iter().filter(|((r, _), _)| r == repo).collect();
            siblings.sort();
            if siblings.is_empty() {
                return answer(404, &[], b"", usize::MAX);
            }
            let siblings = siblings.into_iter().map(|((_, name), (bytes, large))| {
                let mut file = serde_json::json!({
                    "rfilename": name, "size": self.size.unwrap_or(bytes.len() as u64), "blobId": git(bytes),
                });
                if *large {
                    let lfs = serde_json::json!({ "sha256": sha256(bytes), "size": bytes.len() });
                    file["lfs"] = lfs;
                }
                file
            });
            let siblings: Vec<_> = siblings.collect();
            let listing = serde_json::json!({ "id": repo, "sha": COMMIT, "siblings": siblings });
            let text = self.listing.clone().unwrap_or_else(|| listing.to_string());
            return answer(200, &[], text.as_bytes(), usize::MAX);
        }
        let resolved = path.split_once(&format!("/resolve/{COMMIT}/"));
        let key = resolved.map(|(repo, name)| (repo[1..].to_string(), name.replace("%20", " ")));
        match key.and_then(|key| self.files.get(&key)) {
            None => answer(404, &[], b"Entry not found", usize::MAX),
            Some((bytes, true)) => {
                let sum = sha256(bytes);
                let headers = [
                    format!("X-Repo-Commit: {COMMIT}"),
                    format!("X-Linked-Etag: \"{sum}\""),
                    format!("X-Linked-Size: {}", bytes.len()),
                    format!("Location: http://localhost:{cdn_port}/{sum}?signature=1"),
                ];
                answer(302, &headers, b"", usize::MAX)
            }
            Some((bytes, false)) => {
                let etag = format!("ETag: \"{}\"", git(bytes));
                answer(200, &[format!("X-Repo-Commit: {COMMIT}"), etag], bytes, usize::MAX)
            }
        }
    }

    fn cdn(&mut self, request: Request) -> Answer {
        let Request { path, headers } = request;
        let range = headers.get("range").cloned().unwrap_or_default();
        self.log.push(format!("cdn GET {path} {range}").trim_end().into());
        if headers.contains_key("authorization") {
            // As S3, which requires only a signed address.
            return answer(400, &[], b"two ways of authorization", usize::MAX);
        }
        let sum = path[1..].split('?').next().unwrap_or_default();
        let file = self.files.values().find(|(bytes, _)| sha256(bytes) == sum);
        let Some((bytes, _)) = file else {
            return answer(404, &[], b"", usize::MAX);
        };
        let mut bytes = bytes.clone();
        if self.garbled {
            *bytes.last_mut().unwrap() ^= 1;
        }
        let at_most = if self.breaks.is_empty() { usize::MAX } else { self.breaks.remove(0) };
        let ends = range.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
        let pace = self.pace;
        let answer = match ends.filter(|_| !self.no_ranges) {
            None => answer(200, &[], &bytes, at_most),
            Some((from, last)) => {
                let len = bytes.len();
                let (from, last) = (from.parse().unwrap(), last.parse().unwrap_or(len - 1));
                let header = format!("Content-Range: bytes {from}-{last}/{len}");
                match bytes.get(from..=last) {
                    Some(bytes) => answer(206, &[header], bytes, at_most),
                    None => answer(416, &[], b"", at_most),
                }
            }
        };
        Answer { pace, ..answer }
    }
}

struct Request {
    path: String,
    /// The headers, by names in lower case.
    headers: HashMap<String, String>,
}

impl Request {
    fn read(stream: &TcpStream) -> std::io::Result<Self> {
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next().unwrap_or(Ok(String::new()))?;
        let mut headers = HashMap::new();
        for line in lines {
            let line = line?;
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.insert(name.to_lowercase(), value.to_string());
        }
        // A client that is killed as it connects sends nothing.
        let path = first.split(' ').nth(1).ok_or(ErrorKind::UnexpectedEof)?.to_string();
        Ok(Request { path, headers })
    }
}

struct Answer {
    head: String,
    body: Vec<u8>,
    pace: Option<Duration>,
}

/// Returns an answer with no more than `at_most` bytes of `body`.
fn answer(status: u16, headers: &[String], body: &[u8], at_most: usize) -> Answer {
    let mut head = format!("HTTP/1.1 {status} Some\r\nContent-Length: {}\r\n", body.len());
    for header in headers {
        head += &format!("{header}\r\n");
    }
    head += "Connection: close\r\n\r\n";
    Answer { head, body: body[..at_most.min(body.len())].to_vec(), pace: None }
}

impl Answer {
    /// Sends it, and closes the connection.
    fn write(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.write_all(self.head.as_bytes())?;
        let Some(pace) = self.pace else { return stream.write_all(&self.body) };
        for piece in self.body.chunks(1 << 16) {
            stream.write_all(piece)?;
            thread::sleep(pace);
        }
        Ok(())
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Returns git's hash of a file with these bytes.
pub fn git(bytes: &[u8]) -> String {
    let header = format!("blob {}\0", bytes.len());
    hexadecimal(&Sha1::digest([header.as_bytes(), bytes].concat()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
