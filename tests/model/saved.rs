//! Sessions that are written to a file and read back.

use rope_cpu::{
    gguf::Tensor,
    kv_cache::CacheType,
    model::{Feed, Output, Role, Session, saved::Error},
    rope::{ATTENTION_SINKS, Flags, LOG_N, POLICY, SCALE, dca, lm_infinite, rerope},
};

use crate::model::session::{How, difference, load, logits, tokens, with_session};
use rope_cpu_testing::{builder::Builder, on_every_family, tiny::Tiny};

on_every_family!(goes_on_with_the_same_bits);

const MODEL: u128 = 17;

/// A file of the first `len` of 300 tokens.
fn written(tiny: &Tiny, how: &How, len: usize) -> Vec<u8> {
    with_session(tiny, how, |session| {
        session.retain_from(len);
        logits(session, &tokens(tiny, 300));
        let mut file = Vec::new();
        assert_eq!(session.save(MODEL, len, &mut file).unwrap(), len);
        file
    })
}

fn restore(session: &mut Session, file: &[u8]) -> Result<(), Error> {
    session.restore(MODEL, file, file.len() as u64)
}

#[test]
fn a_session_goes_on_with_the_same_bits() {
    let types = CacheType::ALL;
    for tiny in [Tiny::llama(), Tiny::gemma3(), Tiny::latent()] {
        for (keys, values) in types.into_iter().zip(types.into_iter().rev()) {
            let how = How { keys, values, ..How::default() };
            let all = tokens(&tiny, 300);
            let expected = with_session(&tiny, &how, |session| {
                logits(session, &all[..270]);
                logits(session, &all[270..])
            });
            let file = written(&tiny, &how, 270);
            with_session(&tiny, &how, |session| {
                // What was read before makes no difference.
                logits(session, &tokens(&tiny, 600)[300..]);
                restore(session, &file).unwrap();
                assert_eq!(session.tokens(), &all[..270]);
                assert!(logits(session, &all[270..]) == expected, "{keys:?} {values:?}");
            });
        }
    }
}

/// A session of any family goes on from a file, as a copy, and after other tokens were removed.
fn goes_on_with_the_same_bits(name: &str, tiny: Tiny) {
    let how = How::default();
    let all = tokens(&tiny, 300);
    let (head, tail) = all.split_at(270);
    let expected = with_session(&tiny, &how, |session| {
        logits(session, head);
        logits(session, tail)
    });
    let mut file = Vec::new();
    with_session(&tiny, &how, |session| {
        session.retain_from(270);
        logits(session, head);
        assert_eq!(session.save(MODEL, 270, &mut file).unwrap(), 270, "{name}");
        let sequence = session.parts().1;
        let (mut copy, mut found) = (sequence.clone(), Vec::new());
        logits(session, &all[..40]);
        let (engine, role, output) = (session.parts().0, Role::Prompt, Output::Logits);
        let wanted = 0..usize::MAX;
        let mut feeds = [Feed { sequence: &mut copy, tokens: tail, role, wanted, output }];
        engine.step(&mut feeds, &mut |_, _, logits| found.push(logits.to_vec())).unwrap();
        assert!(found == expected, "{name}, a copy");
        assert_eq!(session.truncate(270), 270, "{name}");
        assert!(logits(session, tail) == expected, "{name}, truncated");
    });
    with_session(&tiny, &how, |session| {
        logits(session, &all[100..200]);
        restore(session, &file).unwrap();
        assert_eq!(session.tokens(), head, "{name}");
        assert!(logits(session, tail) == expected, "{name}, restored");
    });
}

#[test]
fn what_acts_on_attention_is_part_of_the_settings() {
    let tiny = Tiny::llama();
    let with = |flags| How { flags, context: 320, ..How::default() };
    let dca = |size| Flags::method("dca").with(&dca::CHUNK_SIZE, size).with(&dca::LOCAL_SIZE, 5);
    let all = [
        Flags::default().with(&ATTENTION_SINKS, 4),
        Flags { context_shift: true, ..Flags::default() },
        Flags::default().with(&LOG_N, true),
        Flags::method("rerope").with(&rerope::WINDOW, 40),
        Flags::method("lm-infinite").with(&lm_infinite::LOCAL, 20),
        dca(40),
        dca(41),
        dca(40).with(&dca::ATTENTION_SCALE, true),
        Flags::method("dynamic"),
        Flags::method("dynamic").with(&POLICY, "run"),
    ];
    for (i, flags) in all.iter().enumerate() {
        let file = written(&tiny, &with(flags.clone()), 300);
        for (j, other) in all.iter().enumerate() {
            with_session(&tiny, &with(other.clone()), |session| {
                assert_eq!(restore(session, &file).is_ok(), i == j, "{flags:?} {other:?}");
            });
        }
    }
    // A cache with a gap goes on where it was.
    let how = with(Flags::default().with(&ATTENTION_SINKS, 4));
    let tokens = tokens(&tiny, 1600);
    let mut file = Vec::new();
    let expected = with_session(&tiny, &how, |session| {
        logits(session, &tokens[..1590]);
        assert_eq!(session.save(MODEL, 1590, &mut file).unwrap(), 1590);
        logits(session, &tokens[1590..])
    });
    with_session(&tiny, &how, |session| {
        restore(session, &file).unwrap();
        assert!(logits(session, &tokens[1590..]) == expected);
    });
}

#[test]
fn what_a_window_has_dropped_is_not_written() {
    let tiny = Tiny::gemma3();
    with_session(&tiny, &How::default(), |session| {
        logits(session, &tokens(&tiny, 700));
        let mut file = Vec::new();
        assert_eq!(session.save(MODEL, 100, &mut file).unwrap(), 0);
        restore(session, &file).unwrap();
        assert!(session.tokens().is_empty());
    });
}

/// Then keys belong to a longer sequence.
#[test]
fn what_was_computed_again_is_not_written_for_a_shorter_sequence() {
    let tiny = Tiny::llama();
    let flags = Flags::method("dynamic").with(&POLICY, "run");
    with_session(&tiny, &How { flags, ..How::default() }, |session| {
        logits(session, &tokens(&tiny, 64));
        assert_eq!(session.save(MODEL, 50, Vec::new()).unwrap(), 50);
        logits(session, &tokens(&tiny, 100)[64..]);
        assert_eq!(session.save(MODEL, 50, Vec::new()).unwrap(), 0);
        // All of it may grow.
        assert_eq!(session.save(MODEL, 100, Vec::new()).unwrap(), 100);
    });
}

#[test]
fn of_a_context_that_has_shifted_only_what_is_kept_is_written() {
    let tiny = Tiny::llama();
    let flags = Flags { context_shift: true, ..Flags::default() };
    let how = How { flags, context: 320, ..How::default() };
    let all = tokens(&tiny, 340);
    with_session(&tiny, &how, |session| {
        session.keep(10).unwrap();
        let first = logits(session, &all);
        let mut file = Vec::new();
        assert_eq!(session.save(MODEL, 340, &mut file).unwrap(), 10);
        restore(session, &file).unwrap();
        assert_eq!(session.tokens(), &all[..10]);
        assert!(difference(&first[10..300], &logits(session, &all[10..300])) < 2e-4);
    });
}

#[test]
fn other_models_and_settings_are_refused_by_name() {
    let tiny = Tiny::llama();
    let file = written(&tiny, &How::default(), 300);
    let refused = |how: &How, model: u128| {
        with_session(&tiny, how, |session| {
            let error = session.restore(model, &file[..], file.len() as u64).unwrap_err();
            assert!(session.tokens().is_empty());
            error.to_string()
        })
    };
    assert!(refused(&How::default(), MODEL + 1).contains("another model"));
    let linear = Flags::method("linear").with(&SCALE, 4.0);
    let found = refused(&How { flags: linear, ..How::default() }, MODEL);
    assert!(found.contains("RoPE: no scaling") && found.contains("factor 4"), "{found}");
    let found = refused(&How { keys: CacheType::F16, ..How::default() }, MODEL);
    assert!(
        found.contains("keys are stored as f32") && found.contains("`cache_type_k` f32"),
        "{found}"
    );
    let found = refused(&How { values: CacheType::Q8_0, ..How::default() }, MODEL);
    assert!(found.contains("`cache_type_v` f32"), "{found}");
    let found = refused(&How { context: 299, ..How::default() }, MODEL);
    assert!(found.contains("300 tokens") && found.contains("-c"), "{found}");
    // The same frequencies in another context are the same settings.
    with_session(&tiny, &How { context: 350, ..How::default() }, |session| {
        restore(session, &file).unwrap();
    });
}

/// Where the header ends, its checksum excluded.
fn header_end(file: &[u8]) -> usize {
    16 + u64::from_le_bytes(file[8..16].try_into().unwrap()) as usize
}

#[track_caller]
fn is_damaged(session: &mut Session, file: &[u8], what: &str) {
    let error = restore(session, file).unwrap_err().to_string();
    assert!(error.starts_with("the file is damaged: it"), "{what}: {error}");
    assert!(session.tokens().is_empty(), "{what}");
}

#[test]
fn every_wrong_bit_is_damage() {
    let tiny = Tiny::llama();
    for (tokens, step) in [(0, 1), (20, 101)] {
        let file = written(&tiny, &How::default(), tokens);
        // All bits but the pages, which have too many.
        let all = (header_end(&file) + 4 + 4 * tokens) * 8;
        let pages = (all..file.len() * 8 - 32).step_by(step);
        with_session(&tiny, &How::default(), |session| {
            for bit in (0..all).chain(pages).chain(file.len() * 8 - 32..file.len() * 8) {
                let mut changed = file.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                is_damaged(session, &changed, &format!("bit {bit}"));
            }
            restore(session, &file).unwrap();
        });
    }
}

#[test]
fn every_missing_end_is_damage() {
    let tiny = Tiny::llama();
    let file = written(&tiny, &How::default(), 20);
    let header = header_end(&file) + 4;
    let behind = (header..file.len()).step_by(997).chain(file.len() - 9..file.len());
    with_session(&tiny, &How::default(), |session| {
        for len in (0..header).chain(behind) {
            is_damaged(session, &file[..len], &format!("{len} bytes"));
        }
        let error = restore(session, &file[..header + 1]).unwrap_err().to_string();
        let expected = format!("it has {} bytes instead of {}", header + 1, file.len());
        assert!(error.ends_with(&expected), "{error}");
        is_damaged(session, &[&file[..], &[0]].concat(), "one byte more");
        // A file that is cut while it is read.
        let error = session.restore(MODEL, &file[..file.len() - 9], file.len() as u64);
        assert_eq!(error.unwrap_err().to_string(), "the file is damaged: it is incomplete");
    });
}

/// Also behind the first pages of a tensor.
#[test]
fn every_weight_is_of_the_model() {
    let builder = Tiny::llama().builder();
    let of = |file: &Builder| load(file, &[]).unwrap().fingerprint();
    let own = of(&builder);
    let model = load(&builder, &[]).unwrap();
    let tensors = model.gguf().tensors();
    let start = |tensor: &Tensor<'_>| tensor.bytes.as_ptr().addr();
    let data = tensors.iter().map(start).min().unwrap();
    assert!(tensors.iter().any(|tensor| tensor.bytes.len() > 8192));
    for tensor in tensors {
        for at in (0..tensor.bytes.len()).step_by(3001).chain([tensor.bytes.len() - 1]) {
            let mut changed = builder.clone();
            changed.data[start(tensor) - data + at] ^= 1;
            assert_ne!(of(&changed), own, "{} {at}", tensor.name);
        }
    }
}

#[test]
fn files_of_other_formats_are_no_damage() {
    let tiny = Tiny::llama();
    with_session(&tiny, &How::default(), |session| {
        let error = restore(session, b"ropecpu1 and what followed").unwrap_err();
        assert!(matches!(error, Error::Version), "{error}");
        for other in [&b"GGUF"[..], b"GGUF and what follows"] {
            let error = restore(session, other).unwrap_err();
            assert!(matches!(error, Error::Foreign), "{error}");
        }
    });
}

/// A context that rolls has room for any number of tokens, but the file has not.
#[test]
fn a_count_that_the_file_cannot_hold_is_damage() {
    let flags = Flags::default().with(&ATTENTION_SINKS, 4);
    let how = How { flags, context: 320, ..How::default() };
    let file = written(&Tiny::llama(), &how, 20);
    let end = header_end(&file);
    let header = std::str::from_utf8(&file[16..end]).unwrap();
    // Too few, one too many, and more than the file could hold with nothing but tokens.
    for tokens in [0, 21, u64::MAX] {
        let header = header.replace("\"tokens\":20", &format!("\"tokens\":{tokens}"));
        let mut crafted = file[..8].to_vec();
        crafted.extend((header.len() as u64).to_le_bytes());
        crafted.extend(header.into_bytes());
        crafted.extend(crc32fast::hash(&crafted).to_le_bytes());
        crafted.extend(&file[end + 4..]);
        with_session(&Tiny::llama(), &how, |session| {
            let error = restore(session, &crafted).unwrap_err().to_string();
            assert!(error.contains("does not match its size"), "{error}");
        });
    }
}
