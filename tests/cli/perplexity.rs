//! `perplexity` on a tiny model, compared with the definitions, token by token.

mod results;

use std::{fs, ops::ControlFlow, path::PathBuf};

use rope_cpu::{
    Token,
    kv_cache::CacheType,
    model::{Model, Options, Session},
    rope::{Flags, Rope},
    tokenizer::{Ends, Special},
};
use serde_json::Value;
use tempfile::{NamedTempFile, TempDir};

use crate::cli::{Run, run, smollm2};
use rope_cpu_testing::reader::tiny_reader;

/// The largest change of a logit of this model by another order of summation.
const BOUND: f64 = 1e-4;

/// A model, a text, and a folder for results.
struct Case {
    model: NamedTempFile,
    folder: TempDir,
    tokens: Vec<Token>,
    bos: Option<Token>,
}

impl Case {
    fn new(seed: u32, bos: bool) -> Self {
        let model = tiny_reader(seed, bos);
        let folder = tempfile::tempdir().unwrap();
        // No rule in it, and 300 tokens or so.
        let letter = |i: usize| b"the inner reason, ron."[(i * i + i / 7) % 22];
        let text = String::from_utf8((0..340).map(letter).collect()).unwrap();
        // The last newline is not part of the text.
        fs::write(folder.path().join("text"), format!("{text}\n")).unwrap();
        let opened = Model::open(model.path()).unwrap();
        let tokenizer = opened.tokenizer().unwrap();
        let tokens = tokenizer.encode(&text, Special::AsText, Ends::Add);
        let bos = tokenizer.bos().filter(|_| bos);
        assert!(bos.is_none_or(|bos| tokens[0] == bos) && (260..330).contains(&tokens.len()));
        Case { model, folder, tokens, bos }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().into()
    }

    /// Runs `perplexity`, by default on the text.
    fn run(&self, options: &[&str]) -> Run {
        let text = self.path("text");
        let comparing = options.contains(&"--kl-divergence");
        let text = if comparing { vec![] } else { vec!["-f", &text] };
        let model = self.model.path().to_str().unwrap();
        let fixed = ["perplexity", "-m", model, "-t", "1", "-ctk", "f32", "-ctv", "f32"];
        run(&[&fixed[..], &text, options].concat())
    }

    #[track_caller]
    fn json(&self, options: &[&str]) -> Value {
        let run = self.run(&[options, &["--json"]].concat());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        rope_cpu::json::parse(&run.stdout).unwrap()
    }

    /// Returns the log-probabilities of all tokens at the positions `scored` of the window that
    /// starts at `start`. Each is from a session with only the tokens before it.
    fn log_probabilities(
        &self,
        start: usize,
        scored: std::ops::Range<usize>,
        bos: Option<Token>,
    ) -> Vec<Vec<f64>> {
        let mut session = session(&Model::open(self.model.path()).unwrap());
        let mut rows = Vec::new();
        for position in scored {
            let mut before = self.tokens[start..start + position].to_vec();
            if let Some(bos) = bos {
                before[0] = bos;
            }
            session.truncate(0);
            let go_on = &mut |_| ControlFlow::Continue(());
            let logits = session.extend(&before, go_on).unwrap().unwrap();
            let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
            rows.push(logits.iter().map(|&x| f64::from(x) - sum.ln()).collect());
        }
        rows
    }

    /// Returns the negative log-likelihoods of the tokens at these positions.
    fn nll(&self, start: usize, scored: std::ops::Range<usize>, bos: Option<Token>) -> Vec<f64> {
        let rows = self.log_probabilities(start, scored.clone(), bos);
        let tokens = scored.map(|position| self.tokens[start + position] as usize);
        rows.iter().zip(tokens).map(|(row, token)| -row[token]).collect()
    }
}

fn session(model: &Model) -> Session {
    let plan = model.rope_plan(&Flags::default(), 256).unwrap();
    let options = Options {
        micro_batch: 64,
        keys: CacheType::F32,
        values: CacheType::F32,
        threads: 1.into(),
        ..Options::new(256)
    };
    Session::new(model, Rope::new(plan), options).unwrap()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[track_caller]
fn close(found: &Value, expected: f64) {
    let found = found.as_f64().unwrap();
    assert!((found - expected).abs() <= BOUND * expected.abs().max(1.0), "{found}, not {expected}");
}

#[test]
fn the_number_is_that_of_llama_perplexity() {
    for bos in [false, true] {
        let case = Case::new(1, bos);
        // In windows of 64, the tokens at 33 to 63, given all before them.
        let windows: Vec<_> =
            (0..case.tokens.len() / 64).map(|i| case.nll(64 * i, 33..64, case.bos)).collect();
        let all = windows.concat();
        assert_eq!(all.len(), 124);
        let squares: Vec<_> = all.iter().map(|x| x * x).collect();
        let error = ((mean(&squares) - mean(&all).powi(2)) / 123.0).sqrt();
        let ppl = mean(&all).exp();
        // The first token of the window changes the result.
        let other = if bos { None } else { Some(0) };
        let other = (0..4).flat_map(|i| case.nll(64 * i, 33..64, other)).collect::<Vec<_>>();
        assert!((mean(&other).exp() / ppl - 1.0).abs() > 3.0 * BOUND);

        let json = case.json(&["-c", "64"]);
        close(&json["perplexity"], ppl);
        close(&json["uncertainty"], ppl * error);
        assert_eq!((&json["tokens"], &json["windows"]), (&124.into(), &4.into()));
        assert_eq!(json["text_tokens"], case.tokens.len());

        let shown = case.run(&["-c", "64", "-ub", "16"]);
        let (values, rest) = shown.stdout.split_once('\n').unwrap();
        let mut seen = Vec::new();
        for (number, (value, nll)) in (1..).zip(values.split_terminator(',').zip(windows)) {
            seen.extend(nll);
            let value = value.strip_prefix(&format!("[{number}]")).unwrap();
            close(&value.parse::<f64>().unwrap().into(), mean(&seen).exp());
        }
        assert_eq!(seen.len(), 124);
        let (ppl_shown, error_shown) = rest
            .strip_prefix("Final estimate: PPL = ")
            .and_then(|rest| rest.trim_end().split_once(" +/- "))
            .unwrap();
        close(&ppl_shown.parse::<f64>().unwrap().into(), ppl);
        close(&error_shown.parse::<f64>().unwrap().into(), ppl * error);
        shown.said(&["RoPE: no scaling", "4 windows, ", " s left"]);

        let lines = case.run(&["-c", "64", "--ppl-output-type", "1", "--chunks", "2"]).stdout;
        let rows: Vec<Vec<f64>> = lines
            .lines()
            .take_while(|line| !line.is_empty())
            .map(|line| line.split_whitespace().map(|cell| cell.parse().unwrap()).collect())
            .collect();
        assert_eq!(rows.iter().map(|row| row[0]).collect::<Vec<_>>(), [0.0, 64.0]);
        close(&rows[1][1].into(), mean(&seen[..62]).exp());
        close(&rows[1][2].into(), mean(&seen[..62]));
    }
}

#[test]
fn a_sliding_window_scores_each_token_once() {
    let case = Case::new(1, true);
    let (n, window, stride) = (case.tokens.len(), 100, 30);
    let mut all = case.nll(0, 1..window, case.bos);
    let mut places: Vec<usize> = (1..window).collect();
    let mut end = window;
    while end < n {
        let start = end + stride - window;
        let next = (end + stride).min(n);
        all.extend(case.nll(start, end - start..next - start, case.bos));
        places.extend(end - start..next - start);
        end = next;
    }
    assert_eq!(all.len(), n - 1);

    let sliding = ["--window", "100", "--stride", "30", "--buckets", "40"];
    let json = case.json(&sliding);
    close(&json["perplexity"], mean(&all).exp());
    assert_eq!((&json["tokens"], &json["stride"]), (&(n - 1).into(), &30.into()));
    let buckets = json["buckets"].as_array().unwrap();
    assert_eq!(buckets.len(), 3);
    for (bucket, positions) in buckets.iter().zip([0..40, 40..80, 80..100]) {
        assert_eq!(bucket["first"], positions.start);
        assert_eq!(bucket["last"], positions.end - 1);
        let there = all.iter().zip(&places).filter(|(_, place)| positions.contains(*place));
        let there: Vec<f64> = there.map(|(nll, _)| *nll).collect();
        assert_eq!(bucket["tokens"], there.len());
        close(&bucket["perplexity"], mean(&there).exp());
    }
    // One pass over the first 100 tokens; and as text.
    let pass = case.json(&["-c", "100", "--stride", "30", "--chunks", "1"]);
    close(&pass["perplexity"], mean(&all[..99]).exp());
    let shown = case.run(&sliding).stdout;
    let rows: Vec<_> = shown.lines().skip_while(|line| !line.contains("positions")).collect();
    assert_eq!(rows.len(), 4, "{shown}");
    assert!(rows[1].contains("0 - 39") && rows[3].contains("80 - 99"), "{shown}");
}

#[test]
fn the_stride_of_llama_perplexity_is_its_own() {
    let case = Case::new(1, true);
    // Windows of 40 + 16 / 2 tokens, with the last 16 scored, without another BOS.
    let starts = (0..case.tokens.len() - 48).step_by(16);
    let all: Vec<_> = starts.flat_map(|start| case.nll(start, 32..48, None)).collect();
    let json = case.json(&["-c", "40", "--ppl-stride", "16"]);
    close(&json["perplexity"], mean(&all).exp());
    assert_eq!((&json["tokens"], &json["window"]), (&all.len().into(), &48.into()));
}

/// Each window has the bits that it has alone, in the same order.
#[test]
fn short_windows_share_a_micro_batch() {
    let case = Case::new(1, true);
    // 261 tokens, with BOS: no rule applies.
    fs::write(case.path("text"), &"abc".repeat(87)[..260]).unwrap();
    let base = case.path("base.kld");
    let cases: [(&[&str], &str); 4] = [
        (&["-c", "64", "--kl-divergence-base", &base], "4 contexts of 64 "),
        (&["-c", "20"], "8 contexts of 20 "),
        (&["-c", "96", "--chunks", "2", "--buckets", "10", "--json"], "2 contexts of 96 "),
        // The last window has a single token, and so none to score.
        (&["--window", "13", "--stride", "13"], "8 contexts of 13 "),
    ];
    for (options, contexts) in cases {
        let read = |micro_batch: &str| {
            let run = case.run(&[options, &["-ub", micro_batch]].concat());
            assert_eq!(run.code, Some(0), "{}", run.stderr);
            (run.stderr, run.stdout, fs::read(&base).unwrap_or_default())
        };
        let (alone, together) = (read("8"), read("256"));
        assert!(alone.0.contains(" for a context of "), "{}", alone.0);
        assert!(together.0.contains(contexts), "{}", together.0);
        assert_eq!(together.1, alone.1, "{options:?}");
        assert!(together.2 == alone.2, "the saved log-probabilities differ");
    }
}

/// Two rows of figures are compared: a run against itself, and against another model.
#[test]
fn a_saved_run_is_compared_with() {
    let (case, other) = (Case::new(1, true), Case::new(7, true));
    let base = case.path("base.kld");
    let saved = case.json(&["-c", "64", "--kl-divergence-base", &base]);
    let rows = 4 * 31;
    let length = 20 + 4 * 4 * 64 + rows * (8 + 2 * 40);
    assert_eq!(fs::metadata(&base).unwrap().len(), length);

    let same = case.json(&["--kl-divergence", "--kl-divergence-base", &base]);
    assert_eq!(same["tokens"], rows);
    close(&same["perplexity"]["value"], saved["perplexity"].as_f64().unwrap());
    close(&same["base_perplexity"]["value"], saved["perplexity"].as_f64().unwrap());
    close(&same["kl"]["value"], 0.0);
    close(&same["same_top"]["value"], 1.0);

    let mut kl = Vec::new();
    let mut differences = Vec::new();
    let mut tops = 0;
    let top = |row: &[f64]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    for i in 0..4 {
        let p = case.log_probabilities(64 * i, 33..64, case.bos);
        let q = other.log_probabilities(64 * i, 33..64, case.bos);
        for (position, (p, q)) in (64 * i + 33..).zip(p.iter().zip(&q)) {
            kl.push(p.iter().zip(q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>());
            let token = case.tokens[position] as usize;
            differences.push(q[token].exp() - p[token].exp());
            tops += u64::from(top(p) == top(q));
        }
    }
    let comparing = ["--kl-divergence", "--kl-divergence-base", &base];
    let json = other.json(&comparing);
    close(&json["kl"]["value"], mean(&kl));
    close(&json["probability_difference"]["value"], mean(&differences));
    let squares: Vec<_> = differences.iter().map(|d| d * d).collect();
    close(&json["probability_difference_rms"]["value"], mean(&squares).sqrt());
    close(&json["same_top"]["value"], tops as f64 / rows as f64);
    kl.sort_by(f64::total_cmp);
    close(&json["kl_quantiles"]["0"], kl[0]);
    close(&json["kl_quantiles"]["0.5"], (kl[61] + kl[62]) / 2.0);
    close(&json["kl_quantiles"]["1"], kl[123]);
    let ppl = other.json(&["-c", "64"]);
    close(&json["perplexity"]["value"], ppl["perplexity"].as_f64().unwrap());
    let ratio = ppl["perplexity"].as_f64().unwrap() / saved["perplexity"].as_f64().unwrap();
    close(&json["ratio"]["value"], ratio);

    let shown = other.run(&comparing);
    assert_eq!(shown.code, Some(0), "{}", shown.stderr);
    for part in [
        "chunk             PPL               ln(PPL(Q)/PPL(base))",
        "   4    ",
        "====== Perplexity statistics ======",
        "Mean PPL(Q)                   : ",
        "Cor(ln(PPL(Q)), ln(PPL(base))): ",
        "====== KL divergence statistics ======",
        "Maximum KLD: ",
        " 0.1%   KLD: ",
        "75.0%   Δp: ",
        "RMS Δp    : ",
        "Same top p: ",
    ] {
        assert!(shown.stdout.contains(part), "{part:?} is not in:\n{}", shown.stdout);
    }
    assert!(!shown.stdout.contains("75.0%   KLD"), "{}", shown.stdout);
    let line = shown.stdout.lines().find_map(|line| line.strip_prefix("Mean    KLD: ")).unwrap();
    let shown_mean: f64 = line.split_whitespace().next().unwrap().parse().unwrap();
    close(&shown_mean.into(), mean(&kl));
    // Too few for statistics, but not for a row.
    let few = other.run(&[&comparing[..], &["--chunks", "1"]].concat());
    assert!(few.stdout.contains("\n   1    ") && !few.stdout.contains("==="), "{}", few.stdout);
    few.said(&["31 tokens"]);
}

#[test]
fn invalid_arguments_are_reported() {
    let case = Case::new(1, false);
    let text = case.path("text");
    case.run(&["-c", "200"]).refused(2, &[&text, "400 are needed", "windows of 200"]);
    case.run(&[]).refused(2, &[&text, "1024 are needed"]);
    case.run(&["-c", "2"]).refused(2, &["--ctx", "at least 3"]);
    case.run(&["--window", "1"]).refused(2, &["--window", "at least 2"]);
    case.run(&["-c", "64", "--window", "65"])
        .refused(2, &["--window 65 makes windows of 65 tokens", "context of 64", "-c 65"]);
    case.run(&["--window", "64", "--stride", "65"]).refused(2, &["--stride", "from 1 to 64"]);
    case.run(&["--window", "64", "--stride", "0"]).refused(2, &["--stride", "at least 1"]);
    case.run(&["-c", "8", "--ppl-stride", "20"]).refused(2, &["--ppl-stride", "from 1 to 17"]);
    case.run(&["--chunks", "0"]).refused(2, &["--chunks", "1 or more"]);
    case.run(&["--buckets", "0"]).refused(2, &["--buckets"]);
    case.run(&["--kl-divergence"]).refused(2, &["--kl-divergence-base"]);
    let base = case.path("no/such/base");
    case.run(&["-c", "64", "--kl-divergence-base", &base]).refused(2, &[&base]);
    case.run(&["--kl-divergence-base", "x", "--window", "64"]).refused(2, &["--window"]);
    case.run(&["--kl-divergence-base", &base, "--buckets", "9", "--plot", "x.svg"])
        .refused(2, &["--plot", "--kl-divergence-base"]);
    for beside in [&["--json"][..], &["--kl-divergence", "--kl-divergence-base", &base]] {
        case.run(&[&["--ppl-output-type", "1"], beside].concat())
            .refused(2, &["--ppl-output-type", beside[0]]);
    }
    case.run(&["--ppl-output-type", "1", "--window", "8,9"])
        .refused(2, &["--ppl-output-type has no effect with several windows"]);
    case.run(&["--hellaswag"]).refused(2, &["--hellaswag is a llama-perplexity option"]);
    case.run(&["--image", "x"]).refused(2, &["--image is a llama-perplexity option"]);
    fs::remove_file(&text).unwrap();
    case.run(&["-c", "64"]).refused(2, &[&text, "(os error 2)"]);
    run(&["perplexity", "-m", "x"]).refused(2, &["--file <FILE>"]);
}

#[test]
fn a_text_that_was_cut_within_a_character_is_read() {
    let case = Case::new(1, false);
    let whole = fs::read(case.path("text")).unwrap();
    let replaced = [&whole[..], "\u{fffd}\u{fffd}".as_bytes()].concat();
    fs::write(case.path("text"), replaced).unwrap();
    let expected = case.json(&["-c", "64"]);
    fs::write(case.path("text"), [&whole[..], b"\xe2\x82"].concat()).unwrap();
    assert_eq!(case.json(&["-c", "64"]), expected);
    let first = format!("2 bytes, the first of them byte {}, are not part of", whole.len());
    case.run(&["-c", "64"]).said(&["note: ", &case.path("text"), &first]);
}

#[test]
fn methods_that_are_equal_within_the_trained_length_are_listed() {
    let case = Case::new(1, true);
    let shown = |methods, window| {
        let run = case.run(&["--methods", methods, "--window", window, "--chunks", "1"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stdout
    };
    let equal = "Equal in windows of 64: none, linear, ntk, yarn: none of them changes a frequency up \
                 to this length, as the model was trained for 256 tokens.\n";
    let all = shown("none,linear,linear:rope-scale=2,ntk,yarn", "64");
    assert!(all.contains(equal), "{all}");
    // The same factor twice is equal, but not as trained.
    let twice = shown("linear:rope-scale=2,none,linear:rope-freq-scale=0.5", "64");
    let equal = "Equal in windows of 64: linear:rope-scale=2, linear:rope-freq-scale=0.5.\n";
    assert!(twice.contains(equal), "{twice}");
    let beyond = shown("none,linear,yarn", "260");
    assert!(!beyond.contains("Equal"), "{beyond}");
}

#[test]
fn a_damaged_file_of_logits_is_named() {
    let case = Case::new(1, false);
    let base = case.path("base.kld");
    let saving = ["-c", "64", "--kl-divergence-base", &base];
    assert_eq!(case.run(&saving).code, Some(0));
    let good = fs::read(&base).unwrap();
    let compare = |bytes: &[u8], options: &[&str]| {
        fs::write(&base, bytes).unwrap();
        let comparing = ["--kl-divergence", "--kl-divergence-base", &base];
        case.run(&[&comparing[..], options].concat())
    };
    let with = |at: usize, value: [u8; 4]| {
        let mut bytes = good.clone();
        bytes[at..at + 4].copy_from_slice(&value);
        bytes
    };
    assert_eq!(compare(&good, &["-c", "64"]).code, Some(0));
    compare(&good, &["-c", "63"]).refused(2, &[&base, "windows of 64", "context of 63", "-c 64"]);
    compare(b"", &[]).refused(2, &[&base, "does not begin"]);
    compare(b"once upon a time there was a file", &[]).refused(2, &[&base, "does not begin"]);
    compare(&good[..good.len() - 1], &[]).refused(2, &[&base, "incomplete"]);
    compare(&[&good[..], b"x"].concat(), &[]).refused(2, &[&base, "damaged"]);
    for (at, part) in [(8, "window"), (12, "vocabulary"), (16, "windows")] {
        compare(&with(at, [255; 4]), &[]).refused(2, &[&base, part]);
        compare(&with(at, [255, 255, 255, 127]), &[]).refused(2, &[&base, "incomplete"]);
    }
    compare(&with(20, [200, 0, 0, 0]), &[]).refused(2, &[&base, "token 0", "200"]);
    // Step of the first row: NaN.
    let row = 20 + 4 * good[16] as usize * 64;
    compare(&with(row, [255; 4]), &["--json"]).refused(2, &[&base, "row 1"]);
    // Another vocabulary: 38 tokens, with shorter rows.
    let mut other = good[..row].to_vec();
    other[12] = 38;
    for row in good[row..].chunks(88) {
        other.extend(&row[..84]);
    }
    for token in other[20..row].chunks_mut(4) {
        token[0] = token[0].min(37);
    }
    compare(&other, &[]).refused(2, &[&base, "vocabulary has 38", "40"]);
}

/// The perplexity of llama-cpp-python 0.3.36 on the same file, text and windows: its logits with a
/// cache of f16 (see `scripts/parity/llama.py`), evaluated as in perplexity.cpp. The rounding of
/// activations changes it by up to 0.4 %; with F32 weights the two agree in all digits shown.
#[test]
fn a_real_model_has_the_perplexity_of_llama_cpp() {
    const LLAMA_CPP: f64 = 34.788453;
    let Some(model) = smollm2() else { return };
    let text = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/jargon.txt");
    let text = text.to_str().unwrap();
    let run = run(&["perplexity", "-m", &model, "-f", text, "--chunks", "2", "--json"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let json: Value = rope_cpu::json::parse(&run.stdout).unwrap();
    let found = json["perplexity"].as_f64().unwrap();
    assert!((found / LLAMA_CPP - 1.0).abs() < 0.01, "{found}");
    assert_eq!((&json["tokens"], &json["text_tokens"]), (&510.into(), &10_091.into()));
}

#[test]
fn generation_with_another_cache_is_compared_with_the_default() {
    let run = |cache| {
        let run = Case::new(5, true).run(&["--decode", "20", "-c", "64", "-ctv", cache, "--json"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let json: Value = rope_cpu::json::parse(&run.stdout).unwrap();
        assert!(json["share_read"].is_null() && json["speedup"].as_f64() > Some(0.0));
        let tokens = json["tokens"].as_u64().unwrap();
        assert!(tokens >= 20 && tokens.is_multiple_of(20), "{tokens}");
        json["kl_quantiles"]["1"].as_f64().unwrap()
    };
    let (fine, coarse) = (run("f32"), run("q4_0"));
    assert!(0.0 < fine && 10.0 * fine < coarse, "{fine} {coarse}");
}

#[test]
fn sparse_attention_that_has_no_effect_is_refused() {
    let case = Case::new(5, true);
    for (options, message) in [
        (&["--sparse-attention", "0.98"][..], "--decode <N>"),
        (&["--decode", "9", "-ctk", "f16", "-ctv", "f16"], "--sparse-attention or --sparse-prompt"),
        (&["--decode", "9", "--sparse-attention", "1"], "must be a number above 0.5 and below 1"),
        (&["--decode", "9", "--sparse-attention", "few"], "must be a number above 0.5 and below 1"),
        (&["--decode", "9", "--sparse-attention", "0.9"], "need 8202 or more"),
        (&["--decode", "9", "--sparse-prompt", "0.9"], "need 16394 or more"),
        (&["--sparse-prompt", "0.9"], "need 16385 or more"),
    ] {
        let run = case.run(options);
        assert!(run.code != Some(0) && run.stderr.contains(message), "{options:?}: {}", run.stderr);
    }
}
