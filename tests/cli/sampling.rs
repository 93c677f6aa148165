//! Sampling options, and the values that a file recommends.

use proptest::prelude::*;
use rope_cpu::{
    gguf::File,
    sample::{Breaker, breakers},
    tokenizer::{Ends, Special, Tokenizer},
};

use crate::cli::{Run, run};
use rope_cpu_testing::reader::{tiny_reader, tiny_suppressing};

fn answer(options: &[&str]) -> Run {
    let file = tiny_reader(3, true);
    let model = ["-m", file.path().to_str().unwrap(), "-p", "the rain on an inn", "-n", "12"];
    run(&[&model, options].concat())
}

#[test]
fn the_file_recommends_and_flags_decide() {
    let greedy = answer(&["--temp", "0", "--no-show-timings"]);
    assert_eq!(greedy.code, Some(0), "{}", greedy.stderr);
    let recommended = ["--override-kv", "general.sampling.temp=float:0", "-s", "1"];
    let file = answer(&recommended);
    assert_eq!(file.stdout, greedy.stdout);
    file.said(&["sampling: temp 0.0 from the file, unless a flag overrides them"]);
    let flag = |seed| answer(&[&recommended[..2], &[seed, "--temp", "9"]].concat()).stdout;
    assert_ne!(flag("--seed=1"), flag("--seed=2"));
    let broken = ["--override-kv", "general.sampling.top_p=float:2"];
    answer(&broken).refused(2, &["general.sampling: --top-p 2: must be from 0 to 1; override it"]);
    let typed = answer(&[&broken[..], &["--top-p", "3"]].concat());
    typed.refused(2, &["error: --top-p 3: must be from 0 to 1"]);
}

#[test]
fn negative_temperatures_are_refused() {
    let reason = "-1: must be a finite number of at least 0";
    for option in [&["--temp", "-1"][..], &["--temp=-1"], &["--temperature", "-1"]] {
        answer(option).refused(2, &["--temp", reason]);
    }
    let file = ["--override-kv", "general.sampling.temp=float:-1"];
    answer(&file).refused(2, &["general.sampling: --temp", reason, "override it"]);
}

#[test]
fn what_a_flag_overrides_is_not_read() {
    for (key, flag) in [
        ("sequence", "--samplers=top_k;temp"),
        ("sequence", "--sampler-seq=kt"),
        ("temp", "--temp=0.5"),
        ("top_k", "--top-k=9"),
        ("top_p", "--top-p=0.9"),
        ("min_p", "--min-p=0.1"),
        ("xtc_probability", "--xtc-probability=0.5"),
        ("xtc_threshold", "--xtc-threshold=0.2"),
        ("penalty_last_n", "--repeat-last-n=9"),
        ("penalty_repeat", "--repeat-penalty=1.1"),
        ("mirostat", "--mirostat=2"),
        ("mirostat_tau", "--mirostat-ent=4"),
        ("mirostat_eta", "--mirostat-lr=0.2"),
    ] {
        let broken = format!("general.sampling.{key}=bool:true");
        let broken = ["--override-kv", &broken];
        answer(&broken).refused(2, &[&format!("metadata key general.sampling.{key} is bool true")]);
        let run = answer(&[&broken[..], &[flag]].concat());
        assert_eq!(run.code, Some(0), "{key}: {}", run.stderr);
    }
}

#[test]
fn tokens_that_the_file_suppresses_are_never_chosen() {
    let answer = |suppressed: &[i32]| {
        let file = tiny_suppressing(3, suppressed);
        let model = ["-m", file.path().to_str().unwrap(), "-p", "the", "--no-display-prompt"];
        // Token 17 is "q" and 26 "z".
        run(&[&model[..], &["-n", "4", "--temp", "0", "-l", "17+2000", "-l", "26+1000"]].concat())
    };
    for (suppressed, expected) in [(&[][..], "qqqq"), (&[17], "zzzz"), (&[26], "qqqq")] {
        let run = answer(suppressed);
        assert_eq!((run.code, run.stdout.trim()), (Some(0), expected), "{}", run.stderr);
    }
    assert!(!answer(&[17, 26]).stdout.contains(['q', 'z']));
    answer(&[3, 40]).refused(2, &["metadata key tokenizer.ggml.suppress_tokens is token 40: "]);
}

#[test]
fn breakers_are_found_however_tokens_spell_them() {
    let file = tiny_reader(3, true);
    let file = File::open(file.path()).unwrap();
    let gguf = file.parse(&[]).unwrap();
    let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
    let of = |texts: &[&str]| -> Vec<Breaker> {
        breakers(&tokenizer, &texts.iter().map(|text| String::from(*text)).collect::<Vec<_>>())
    };
    let token = |text: &str| tokenizer.token(text).unwrap();
    let spelled = |first: &str, others: &[&str]| {
        (token(first), others.iter().map(|text| token(text)).collect::<Vec<_>>())
    };
    assert_eq!(of(&["\n", ":", "\"", "*"]), [spelled("Ċ", &[])]);
    assert_eq!(of(&["he,"]), [spelled("h", &["e", ","]), spelled("he", &[","])]);
    assert_eq!(of(&[" t", ""]), [spelled("Ġ", &["t"]), spelled("Ġt", &[])]);
    // "ther" is "t", "he" and "r": the rest of the text is encoded as a whole.
    assert_eq!(of(&["ther"]), [spelled("t", &["he", "r"]), spelled("Ġt", &["he", "r"])]);
}

/// The definition of breakers, one text after the other.
fn breakers_by_definition(tokenizer: &Tokenizer<'_>, texts: &[String]) -> Vec<Breaker> {
    let mut breakers = Vec::new();
    for token in 0..tokenizer.len() as u32 {
        let piece = tokenizer.decode(&[token], true);
        for text in texts.iter().filter(|text| !text.is_empty()) {
            let bytes = text.as_bytes();
            if piece.windows(bytes.len()).any(|part| part == bytes) {
                breakers.push((token, Vec::new()));
                continue;
            }
            for shared in (1..bytes.len().min(piece.len() + 1)).rev() {
                if piece.ends_with(&bytes[..shared])
                    && let Some(rest) = text.get(shared..)
                {
                    let breaker = (token, tokenizer.encode(rest, Special::AsText, Ends::Omit));
                    if !breakers.contains(&breaker) {
                        breakers.push(breaker);
                    }
                }
            }
        }
    }
    breakers
}

proptest! {
    #[test]
    fn breakers_are_found_by_their_definition(
        texts in prop::collection::btree_set("[ther ,nä\n]{0,6}", 0..12),
    ) {
        let file = tiny_reader(3, true);
        let file = File::open(file.path()).unwrap();
        let gguf = file.parse(&[]).unwrap();
        let tokenizer = Tokenizer::from_metadata(gguf.metadata()).unwrap();
        let texts: Vec<_> = texts.into_iter().rev().collect();
        prop_assert_eq!(breakers(&tokenizer, &texts), breakers_by_definition(&tokenizer, &texts));
    }
}

/// After a line "zq", a "z" in another line is a repetition, unless the newline breaks it.
#[test]
fn breakers_spare_what_follows_them() {
    let q = "17+1000"; // it is chosen unless it is penalized
    let fixed = ["-p", "\\nzq\\nz", "-n", "1", "--temp", "0", "-l", q, "--no-display-prompt"];
    let spared = |breakers: &[&str]| {
        let breakers = breakers.iter().flat_map(|text| ["--dry-sequence-breaker", text]);
        let dry = ["--dry-multiplier", "10000"].into_iter().chain(breakers);
        let run = answer(&fixed.into_iter().chain(dry).collect::<Vec<_>>());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stdout.trim() == "q"
    };
    assert!(spared(&[]));
    assert!(spared(&["\\n"]));
    assert!(!spared(&["none"]));
    assert!(!spared(&["x"]));
    assert!(!spared(&["\\n", "none"]));
    assert!(!spared(&["\\n", "none", "x"]));
    assert!(spared(&["none", "\\n"]));
}

#[test]
fn every_sampler_writes_and_a_seed_decides_what() {
    let all = "--dry-multiplier 0.5 --dry-base 1.5 --dry-allowed-length 1 --dry-penalty-last-n 99 \
               --dry-sequence-breaker \\n --top-n-sigma 3 --xtc-probability 0.5 --xtc-threshold 0.1 \
               --dynatemp-range 0.4 --dynatemp-exp 2 --repeat-penalty 1.1 --top-k 20 -l 5+1";
    for options in [all, "--mirostat 1 --mirostat-ent 3", "--mirostat 2 --mirostat-lr 0.2"] {
        let seeded = |seed| {
            let options: Vec<_> = options.split_whitespace().chain(["-s", seed]).collect();
            let run = answer(&options);
            assert_eq!(run.code, Some(0), "{}", run.stderr);
            assert!(!run.stderr.contains("warning"), "{}", run.stderr);
            run.stdout
        };
        assert_eq!(seeded("7"), seeded("7"));
        assert_ne!(seeded("7"), seeded("8"), "{options}");
    }
}

#[test]
fn two_seeds_are_random_ones() {
    let seed = |typed: &str| {
        let run = answer(&["-s", typed]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        String::from(run.stderr.rsplit_once("seed").unwrap().1.trim())
    };
    assert_eq!(seed("4294967294"), "4294967294");
    for random in ["-1", "4294967295"] {
        let (first, second) = (seed(random), seed(random));
        assert!(first != "4294967295" && first != second, "{random}: {first}, {second}");
    }
}

#[test]
fn options_without_effect_are_reported() {
    let warned = |options: &[&str], parts: &[&str]| {
        let run = answer(options);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.said(parts);
    };
    warned(&["--mirostat", "2", "--top-k", "5"], &["warning: --top-k has no effect with Mirostat"]);
    warned(
        &["--samplers", "top_k;temp", "--min-p", "0.1"],
        &["warning: --min-p has no effect: min_p is not among the samplers"],
    );
    for (options, reason) in [
        ("--dry-base 2", "--dry-base has no effect without --dry-multiplier"),
        ("--repeat-last-n 9", "--repeat-last-n has no effect without a penalty"),
        ("--presence-penalty 1 --repeat-last-n 0", "--presence-penalty has no effect with"),
        ("--xtc-probability 1 --xtc-threshold 0.6", "--xtc-probability has no effect if"),
        ("--dynatemp-range -1", "--dynatemp-range has no effect below 0"),
        ("--dry-multiplier 1 --dry-sequence-breaker=", "breaker has no effect without a text"),
    ] {
        let options: Vec<_> = options.split(' ').collect();
        warned(&options, &["warning: ", reason]);
    }
}

#[test]
fn faults_name_the_option() {
    answer(&["--samplers", "top_k;grammar"])
        .refused(2, &["--samplers", "\"grammar\"", "top_n_sigma"]);
    answer(&["--sampler-seq", "kq"]).refused(2, &["--sampler-seq", "'q'", "k (top_k)"]);
    answer(&["--mirostat", "3"]).refused(2, &["--mirostat"]);
    answer(&["-l", "40+1"]).refused(2, &["--logit-bias 40: the token must be from 0 to 39"]);
    answer(&["-l", "7"]).refused(2, &["--logit-bias", "must be a token ID"]);
    answer(&["-l", "7+inf"]).refused(2, &["--logit-bias inf: must be a number or -inf"]);
}
