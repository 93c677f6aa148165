//! Metrics, in the text format of Prometheus.

use std::{
    collections::HashMap,
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::json;

use crate::server::harness::{PROMPT, Server, serve};

/// A family of samples: its type, and the values under their names with labels.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    samples: Vec<(String, f64)>,
}

/// Parses all metrics of a server. Each family has one HELP, then one TYPE, then its samples.
fn metrics(server: &Server) -> HashMap<String, Family> {
    let reply = server.get("/metrics");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4"));
    let mut families: HashMap<String, Family> = HashMap::new();
    let (mut helped, mut current) = (String::new(), String::new());
    assert!(reply.text.ends_with('\n'));
    for line in reply.text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(!text.is_empty() && !families.contains_key(name), "{line}");
            helped = name.into();
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert_eq!(name, helped);
            current = name.into();
            families.insert(name.into(), Family { kind: kind.into(), samples: Vec::new() });
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            let valid = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
            assert!(name.chars().all(valid) && !name.starts_with(|c: char| c.is_ascii_digit()));
            let family = families.get_mut(&current).unwrap();
            let suffix = name.strip_prefix(&current[..]).expect(line);
            let permitted: &[&str] = match &family.kind[..] {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(permitted.contains(&suffix), "{line}");
            family.samples.push((sample.into(), value.parse().unwrap()));
        }
    }
    families
}

fn value(metrics: &HashMap<String, Family>, name: &str) -> f64 {
    let family = &metrics[&format!("llamacpp:{name}")];
    assert_eq!(family.samples.len(), 1, "{family:?}");
    family.samples[0].1
}

/// Returns the number of times in a histogram, after checks of its form.
fn count(metrics: &HashMap<String, Family>, name: &str) -> f64 {
    let family = &metrics[&format!("llamacpp:{name}")];
    assert_eq!(family.kind, "histogram");
    let [buckets @ .., (sum, total), (count, all)] = &family.samples[..] else { panic!() };
    assert!(sum.contains("_sum{") && *total >= 0.0 && count.contains("_count{"));
    let bound = |sample: &str| -> f64 {
        let bound = sample.split_once(",le=\"").unwrap().1.strip_suffix("\"}").unwrap();
        if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() }
    };
    assert!(buckets.is_sorted_by(|a, b| bound(&a.0) < bound(&b.0) && a.1 <= b.1), "{buckets:?}");
    let last = buckets.last().unwrap();
    assert_eq!((bound(&last.0), last.1), (f64::INFINITY, *all));
    *all
}

#[test]
fn metrics_follow_the_requests() {
    let server = serve(&["-c", "512", "-np", "2", "--max-queue", "7", "--metrics"]);
    let before = metrics(&server);
    for name in ["requests_total", "prefix_hits_total", "kv_pages", "tokens_predicted_total"] {
        assert_eq!(value(&before, name), 0.0, "{name}");
    }
    assert_eq!(count(&before, "time_to_first_token_seconds"), 0.0);
    let body = json!({ "prompt": PROMPT, "n_predict": 12 });
    let first = server.post("/completion", body.clone()).json();
    let _: Vec<_> = server.stream("/completion", body).collect();
    let after = metrics(&server);
    let prompt = first["tokens_evaluated"].as_f64().unwrap();
    for (name, expected) in [
        ("requests_total", 2.0),
        ("prefix_hits_total", 1.0),
        ("prompt_tokens_total", prompt + 1.0),
        ("prompt_tokens_cached_total", prompt - 1.0),
        ("tokens_predicted_total", 24.0),
        ("requests_processing", 0.0),
        ("requests_deferred", 0.0),
        ("requests_deferred_max", 7.0),
        ("slots", 2.0),
        ("build_info", 1.0),
    ] {
        assert_eq!(value(&after, name), expected, "{name}");
    }
    assert_eq!(count(&after, "time_to_first_token_seconds"), 2.0);
    assert_eq!(count(&after, "inter_token_seconds"), 22.0);
    let (used, most) = (value(&after, "kv_pages"), value(&after, "kv_pages_max"));
    assert!(0.0 < used && used < most, "{used} of {most}");
    let version = &after["llamacpp:build_info"].samples[0].0;
    assert!(version.contains(concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"")), "{version}");
}

#[test]
fn headers_have_the_case_of_llama_server() {
    let server = serve(&["-c", "256", "--metrics"]);
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.contains("\r\nProcess-Start-Time-Unix: "), "{reply}");
}
