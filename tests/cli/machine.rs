//! `rope-cpu machine`.

use serde_json::Value;

use crate::cli::run;

#[test]
fn the_text_has_the_machine_and_its_peaks() {
    let shown = run(&["machine", "-t", "1"]);
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""));
    for part in ["threads", "1 (--threads 1)", "1 thread", "read", "int8, scalar", "GFLOPS"] {
        assert!(shown.stdout.contains(part), "{part:?} is not in:\n{}", shown.stdout);
    }
    assert!(shown.stdout.lines().all(|line| line.trim_end() == line), "{}", shown.stdout);
}

#[test]
fn the_json_has_the_same_for_one_thread_and_all() {
    let shown = run(&["machine", "--json", "-t", "2", "--isa", "scalar"]);
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""));
    let json: Value = rope_cpu::json::parse(&shown.stdout).unwrap();
    assert_eq!((&json["isa"], &json["threads"]), (&"scalar".into(), &2.into()));
    assert_eq!(json["threads_reason"], "--threads 2");
    let usable = json["isas"].as_array().unwrap();
    assert_eq!(usable[0], "scalar");
    let measured = json["measured"].as_array().unwrap();
    let threads: Vec<_> = measured.iter().map(|m| m["threads"].as_u64().unwrap()).collect();
    assert_eq!(threads, [1, 2]);
    for measured in measured {
        for name in ["read_bandwidth", "f32_fma"] {
            let rate = measured[name].as_f64().unwrap();
            assert!(rate > 1e6 && rate < 1e14, "{name}: {rate}");
        }
        for isa in usable {
            let rate = measured["int8_dot"][isa.as_str().unwrap()].as_f64().unwrap();
            assert!(rate > 1e6 && rate < 1e14, "{isa}: {rate}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_threads_are_those_of_a_run_and_the_system_is_asked() {
    let shown = run(&["machine", "--json", "--isa", "scalar"]);
    let json: Value = rope_cpu::json::parse(&shown.stdout).unwrap();
    let chosen = rope_cpu::platform::processors::default_threads();
    assert_eq!(json["threads"], chosen.workers.answers);
    assert_eq!(json["threads_reason"], chosen.reason.as_str());
    assert!(json["memory_available"].as_u64().unwrap() > 1 << 20);
    assert!(json["topology"]["cores"].as_u64().unwrap() >= 1);
}
