//! A file of a sequence, as prompt caches and the cache on disk have it, is restored or refused, also
//! with checksums that match its damage.
#![no_main]

use std::{cell::RefCell, ops::ControlFlow::Continue};

use libfuzzer_sys::{arbitrary::Arbitrary, fuzz_target};
use rope_cpu::{
    model::{Model, Session},
    rope::{Flags, Rope},
};
use rope_cpu_fuzz::{models, number::Number};
use rope_cpu_testing::tiny::Tiny;

/// The fingerprint of all models.
const MODEL: u128 = 17;
/// The tokens of a file.
const TOKENS: usize = 20;
/// The bytes before the header, and of a checksum.
const BEFORE: usize = 16;
const SUM: usize = 4;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    family: u8,
    edits: Vec<Edit<'a>>,
    /// Whether checksums are computed again.
    sums: bool,
}

#[derive(Arbitrary, Debug)]
enum Edit<'a> {
    /// Replaces the nth number in the header's JSON.
    HeaderNumber {
        nth: u8,
        number: Number,
    },
    HeaderText {
        at: u16,
        removed: u8,
        text: &'a [u8],
    },
    Content {
        at: Number,
        byte: u8,
    },
    ContentNumber {
        at: Number,
        number: Number,
    },
    Cut {
        len: Number,
    },
    More {
        bytes: &'a [u8],
    },
}

thread_local! {
    /// Sessions with a window, latents, and recurrent layers, each with its file.
    static SESSIONS: RefCell<Vec<(Session, Vec<u8>)>> = {
        let names = ["llama", "gemma3", "deepseek2", "lfm2", "qwen35", "granitehybrid"];
        RefCell::new(names.map(|name| saved(&Tiny::named(name))).into())
    };
}

fn saved(tiny: &Tiny) -> (Session, Vec<u8>) {
    let model: Model = models::open(&tiny.builder().bytes()).expect("a model");
    let plan = model.rope_plan(&Flags::default(), 64).expect("a plan");
    let mut session =
        Session::new(&model, Rope::new(plan), models::options(64)).expect("a session");
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|at| at * 7 % 23).collect();
    session.retain_from(TOKENS);
    session.evaluate(&tokens, 0..0, &mut |_, _| {}).expect("logits");
    let mut file = Vec::new();
    assert_eq!(session.save(MODEL, TOKENS, &mut file).expect("a file"), TOKENS);
    (session, file)
}

fuzz_target!(|input: Input| {
    SESSIONS.with_borrow_mut(|sessions| {
        let index = usize::from(input.family) % sessions.len();
        let (session, file) = &mut sessions[index];
        let file = changed(file, &input);
        let size = file.len() as u64;
        let outline = session.archive(MODEL).outline(&file[..], size);
        let restored = session.restore(MODEL, &file[..], size);
        assert!(outline.is_ok() || restored.is_err());
        assert!(session.tokens().len() <= 64);
        if restored.is_ok() {
            let _ = session.answer(3, &mut |_| Continue(()));
        } else {
            assert!(session.tokens().is_empty());
        }
    });
});

fn changed(file: &[u8], input: &Input) -> Vec<u8> {
    let len = u64::from_le_bytes(file[8..BEFORE].try_into().expect("a length")) as usize;
    let mut header = file[BEFORE..][..len].to_vec();
    let mut content = file[BEFORE + len + SUM..file.len() - SUM].to_vec();
    for edit in input.edits.iter().take(8) {
        match edit {
            Edit::HeaderNumber { nth, number } => replace_number(&mut header, *nth, *number),
            Edit::HeaderText { at, removed, text } => {
                let at = usize::from(*at).min(header.len());
                let end = header.len().min(at + usize::from(*removed));
                header.splice(at..end, text.iter().copied());
            }
            Edit::Content { at, byte } => {
                let at = at.index(content.len());
                content.get_mut(at).into_iter().for_each(|to| *to = *byte);
            }
            Edit::ContentNumber { at, number } => {
                let to = content.iter_mut().skip(at.get() as usize % (4 * TOKENS));
                to.zip((number.get() as u32).to_le_bytes()).for_each(|(to, byte)| *to = byte);
            }
            Edit::Cut { len } => content.truncate(len.index(content.len())),
            Edit::More { bytes } => content.extend(*bytes),
        }
    }
    let mut out = [&file[..8], &(header.len() as u64).to_le_bytes(), &header].concat();
    let sum = |out: &[u8], old: &[u8]| match input.sums {
        true => crc32fast::hash(out).to_le_bytes().to_vec(),
        false => old.to_vec(),
    };
    out.extend(sum(&out, &file[BEFORE + len..][..SUM]));
    out.extend(content);
    out.extend(sum(&out, &file[file.len() - SUM..]));
    out
}

/// Replaces the nth run of digits of a text.
fn replace_number(text: &mut Vec<u8>, nth: u8, number: Number) {
    let starts: Vec<usize> = (1..text.len())
        .filter(|at| text[*at].is_ascii_digit() && !text[at - 1].is_ascii_alphanumeric())
        .collect();
    if let Some(start) = starts.get(usize::from(nth) % starts.len().max(1)) {
        let digits = text[*start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        text.splice(*start..start + digits, number.get().to_string().into_bytes());
    }
}
