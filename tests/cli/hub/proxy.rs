//! Downloads through a proxy.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use super::{MODEL, REPO, Setup, is, setup};

/// A proxy that connects to any host (CONNECT), and records which.
struct Proxy {
    address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::<Mutex<Vec<String>>>::default();
        let recorded = log.clone();
        // Ends with the test.
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let log = recorded.clone();
                thread::spawn(move || serve(client, &log));
            }
        });
        Proxy { address, log }
    }

    /// Returns the connections since the last call: the hosts, and the keys of those who asked.
    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

/// Answers one request for a connection.
fn serve(client: TcpStream, log: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut lines = Vec::new();
    for line in reader.by_ref().lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let words: Vec<&str> = lines[0].split(' ').collect();
    let host = words[1].split(':').next().unwrap();
    let key = lines.iter().find_map(|line| {
        line.to_lowercase().strip_prefix("proxy-authorization: ").map(String::from)
    });
    log.lock().unwrap().push(format!(
        "{} {host}{}",
        words[0],
        key.map_or(String::new(), |key| format!(" {key}"))
    ));
    if words[0] != "CONNECT" {
        return (&client).write_all(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n");
    }
    let server = TcpStream::connect(words[1])?;
    (&client).write_all(b"HTTP/1.1 200 Connected\r\n\r\n")?;
    let (mut up, mut down) = (server.try_clone()?, client);
    let mut answers = server;
    let sender = thread::spawn(move || {
        let _ = io::copy(&mut reader, &mut up);
        let _ = up.shutdown(Shutdown::Write);
    });
    let _ = io::copy(&mut answers, &mut down);
    let _ = down.shutdown(Shutdown::Both);
    let _ = sender.join();
    Ok(())
}

/// Pulls the model, which no earlier pull has left.
fn pull(hub: &Setup, variables: &[(&str, &str)]) {
    let _ = std::fs::remove_dir_all(hub.cache(REPO));
    is(&hub.with(variables, &["pull", REPO]), &format!("{REPO}:Q4_K_M\n"));
    assert!(hub.cache(REPO).join("snapshots").join(super::COMMIT).join(MODEL).exists());
}

#[test]
fn a_variable_names_the_proxy_of_downloads() {
    let (hub, proxy) = (setup(), Proxy::start());
    let url = format!("http://{}", proxy.address);
    // The listing comes from the hub, the file from another host.
    for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
        pull(&hub, &[(name, &url)]);
        let mut log = proxy.log();
        log.dedup();
        assert_eq!(log, ["CONNECT 127.0.0.1", "CONNECT localhost"], "{name}");
        hub.server.log();
    }
    // Hosts without it.
    for (hosts, expected) in [
        ("localhost", &["CONNECT 127.0.0.1"][..]),
        ("127.0.0.1", &["CONNECT localhost"]),
        ("127.0.0.1,localhost", &[]),
        ("*", &[]),
    ] {
        pull(&hub, &[("HTTPS_PROXY", &url), ("NO_PROXY", hosts)]);
        let mut log = proxy.log();
        log.dedup();
        assert_eq!(log, expected, "{hosts}");
    }
    pull(&hub, &[]);
    assert_eq!(proxy.log(), [""; 0]);
}

#[test]
fn a_proxy_may_want_a_password() {
    let (hub, proxy) = (setup(), Proxy::start());
    pull(&hub, &[("HTTPS_PROXY", &format!("http://me:secret@{}", proxy.address))]);
    let log = proxy.log();
    assert!(log.iter().all(|line| line.ends_with(" basic bwu6c2vjcmv0")), "{log:?}");
}

#[test]
fn a_proxy_that_is_gone_is_reported() {
    let hub = setup();
    let gone = [("HTTPS_PROXY", "http://127.0.0.1:9")];
    hub.with(&gone, &["pull", REPO]).refused(1, &["cannot be reached", REPO]);
    assert_eq!(hub.server.log(), [""; 0]);
}
