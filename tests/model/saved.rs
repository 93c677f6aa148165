//! Sessions that are written to a file and read back.

use rope_cpu::{
    kv_cache::CacheType,
    model::{Session, saved::Error},
    rope::{Flags, Policy, Scaling},
};

use crate::tiny::{How, Tiny, difference, logits, tokens, with_session};

const MODEL: u32 = 17;

/// A file of the first `len` of 300 tokens.
fn written(tiny: &Tiny, how: &How, len: usize) -> Vec<u8> {
    with_session(tiny, how, |session| {
        session.hold(len);
        logits(session, &tokens(tiny, 300));
        let mut file = Vec::new();
        assert_eq!(session.save(MODEL, len, &mut file).unwrap(), len);
        file
    })
}

fn restore(session: &mut Session<'_>, file: &[u8]) -> Result<(), Error> {
    session.restore(MODEL, file, file.len() as u64)
}

#[test]
fn a_session_goes_on_with_the_same_bits() {
    let types = [CacheType::F32, CacheType::F16, CacheType::Q8_0, CacheType::Q4_0];
    for tiny in [Tiny::llama(), Tiny::gemma3()] {
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

#[test]
fn what_acts_on_attention_is_part_of_the_settings() {
    let tiny = Tiny::llama();
    let with = |flags| How { flags, context: 320, ..How::default() };
    let all = [
        Flags { attention_sinks: Some(4), ..Flags::default() },
        Flags { context_shift: true, ..Flags::default() },
        Flags { log_n: Some(true), ..Flags::default() },
        Flags { scaling: Some(Scaling::ReRope), rerope_window: Some(40), ..Flags::default() },
        Flags {
            scaling: Some(Scaling::LmInfinite),
            lm_infinite_local: Some(20),
            ..Flags::default()
        },
        Flags { scaling: Some(Scaling::Dynamic), ..Flags::default() },
        Flags { scaling: Some(Scaling::Dynamic), policy: Some(Policy::Run), ..Flags::default() },
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
    let how = with(Flags { attention_sinks: Some(4), ..Flags::default() });
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

/// Then keys are those of a longer sequence.
#[test]
fn what_was_computed_again_is_not_written_for_a_shorter_sequence() {
    let tiny = Tiny::llama();
    let (scaling, policy) = (Some(Scaling::Dynamic), Some(Policy::Run));
    let flags = Flags { scaling, policy, ..Flags::default() };
    with_session(&tiny, &How { flags, ..How::default() }, |session| {
        logits(session, &tokens(&tiny, 64));
        assert_eq!(session.save(MODEL, 50, &mut Vec::new()).unwrap(), 50);
        logits(session, &tokens(&tiny, 100)[64..]);
        assert_eq!(session.save(MODEL, 50, &mut Vec::new()).unwrap(), 0);
        // All of it may grow.
        assert_eq!(session.save(MODEL, 100, &mut Vec::new()).unwrap(), 100);
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
    let refused = |how: &How, model: u32| {
        with_session(&tiny, how, |session| {
            let error = session.restore(model, &file[..], file.len() as u64).unwrap_err();
            assert!(session.tokens().is_empty());
            error.to_string()
        })
    };
    assert!(refused(&How::default(), MODEL + 1).contains("another model"));
    let linear = Flags { scaling: Some(Scaling::Linear), scale: Some(4.0), ..Flags::default() };
    let found = refused(&How { flags: linear, ..How::default() }, MODEL);
    assert!(found.contains("RoPE: no scaling") && found.contains("factor 4"), "{found}");
    let found = refused(&How { keys: CacheType::F16, ..How::default() }, MODEL);
    assert!(found.contains("keys are stored as f32") && found.contains("-ctk f32"), "{found}");
    let found = refused(&How { values: CacheType::Q8_0, ..How::default() }, MODEL);
    assert!(found.contains("-ctv f32"), "{found}");
    let found = refused(&How { context: 299, ..How::default() }, MODEL);
    assert!(found.contains("300 tokens") && found.contains("-c"), "{found}");
    // The same frequencies in another context are the same settings.
    with_session(&tiny, &How { context: 350, ..How::default() }, |session| {
        restore(session, &file).unwrap();
    });
}

#[test]
fn damage_is_found_wherever_it_is() {
    let tiny = Tiny::llama();
    let file = written(&tiny, &How::default(), 20);
    with_session(&tiny, &How::default(), |session| {
        for len in [0, 7, 15, 16, 40, file.len() / 2, file.len() - 1] {
            assert!(restore(session, &file[..len]).is_err(), "{len} bytes");
        }
        for at in [0, 9, 12, 20, 60, file.len() / 2, file.len() - 1] {
            let mut changed = file.clone();
            changed[at] ^= 4;
            assert!(restore(session, &changed).is_err(), "byte {at}");
            assert!(session.tokens().is_empty());
        }
        restore(session, &file).unwrap();
    });
}

/// A context that rolls has room for any number of tokens, but the file has not.
#[test]
fn a_count_that_the_file_cannot_hold_is_damage() {
    let flags = Flags { attention_sinks: Some(4), ..Flags::default() };
    let how = How { flags, context: 320, ..How::default() };
    let file = written(&Tiny::llama(), &how, 20);
    let length = u64::from_le_bytes(file[8..16].try_into().unwrap()) as usize;
    let header = std::str::from_utf8(&file[16..16 + length]).unwrap();
    let header = header.replace("\"tokens\":20", &format!("\"tokens\":{}", u64::MAX));
    let mut crafted = file[..8].to_vec();
    crafted.extend((header.len() as u64).to_le_bytes());
    crafted.extend(header.into_bytes());
    crafted.extend(&file[16 + length..]);
    with_session(&Tiny::llama(), &how, |session| {
        assert!(matches!(restore(session, &crafted), Err(Error::Damaged("its length"))));
    });
}
