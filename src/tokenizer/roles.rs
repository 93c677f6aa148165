//! The tokens with a role: they start or end a text, end an answer, or are never generated.
//!
//! A file gives some of these tokens by number. The others are found by well-known texts, from
//! llama.cpp's lists.

use std::collections::BTreeSet;

use super::{
    Error,
    vocabulary::{Kind, Vocabulary},
};
use crate::{Token, gguf::Metadata};

const BOS: &str = "tokenizer.ggml.bos_token_id";
const EOS: &str = "tokenizer.ggml.eos_token_id";
/// BERT's token before a text.
const CLS: &str = "tokenizer.ggml.cls_token_id";
/// BERT's token after a text. The key is misspelled in all files.
const SEP: &str = "tokenizer.ggml.seperator_token_id";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";
const SUPPRESSED: &str = "tokenizer.ggml.suppress_tokens";

/// The values used for keys that a file does not have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Defaults {
    bos: Option<Token>,
    eos: Option<Token>,
    add_bos: bool,
    /// Whether every text is enclosed by the tokens CLS and SEP, which are BOS and EOS here.
    encloses: bool,
}

impl Defaults {
    /// The defaults of SentencePiece vocabularies, from Llama 1 and 2.
    pub const SPM: Self = Self { bos: Some(1), eos: Some(2), add_bos: true, encloses: false };

    /// The defaults of WordPiece vocabularies, from BERT.
    pub const WORDPIECE: Self =
        Self { bos: Some(101), eos: Some(102), add_bos: true, encloses: true };

    /// Returns the defaults of BPE vocabularies, which have no common tokens. (llama.cpp uses token
    /// 11, which is right only for Falcon.)
    pub fn bpe(add_bos: bool) -> Self {
        Self { bos: None, eos: None, add_bos, encloses: false }
    }
}

/// The tokens with a role.
#[derive(Debug)]
pub(super) struct Roles {
    pub bos: Option<Token>,
    pub eos: Option<Token>,
    pub add_bos: bool,
    pub add_eos: bool,
    /// The tokens that end an answer.
    pub ends_generation: BTreeSet<Token>,
    /// The tokens for filling a gap; `None` if a necessary one is missing.
    pub fill_in_middle: Option<FillInMiddle>,
    /// The tokens that must never be generated.
    pub suppressed: Vec<Token>,
}

/// The tokens for filling a gap in a text. A prompt has the text before and after the gap; the
/// answer is the missing text.
///
/// ```no_run
/// use rope_cpu::{model::Model, tokenizer::{Ends, Special}};
///
/// let model = Model::open("qwen2.5-coder.gguf")?;
/// let tokenizer = model.tokenizer()?;
/// if let Some(fill) = tokenizer.fill_in_middle() {
///     let mut prompt = vec![fill.prefix];
///     prompt.extend(tokenizer.encode("fn add(a: i32, b: i32)", Special::AsText, Ends::Omit));
///     prompt.push(fill.suffix);
///     prompt.extend(tokenizer.encode("}", Special::AsText, Ends::Omit));
///     prompt.push(fill.middle);
/// }
/// # Ok::<(), rope_cpu::model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FillInMiddle {
    /// The token before the text that precedes the gap.
    pub prefix: Token,
    /// The token before the text that follows the gap.
    pub suffix: Token,
    /// The token before the text that fills the gap.
    pub middle: Token,
    /// The token before the name of a repository.
    pub repository: Option<Token>,
    /// The token before the name of a file. The text of the file follows.
    pub file: Option<Token>,
}

/// A part of a text with a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Prefix,
    Suffix,
    Middle,
    Repository,
    File,
}

/// The tokens of parts.
type Parts = Vec<(Part, Token)>;

impl FillInMiddle {
    fn of(parts: &Parts) -> Option<Self> {
        let token = |part| parts.iter().find(|(other, _)| *other == part).map(|(_, token)| *token);
        Some(FillInMiddle {
            prefix: token(Part::Prefix)?,
            suffix: token(Part::Suffix)?,
            middle: token(Part::Middle)?,
            repository: token(Part::Repository),
            file: token(Part::File),
        })
    }
}

/// A role. The file may give its token by number; otherwise it is the first of `texts` that is a
/// token.
struct Role {
    keys: &'static [&'static str],
    texts: &'static [&'static str],
    ends_generation: bool,
    part: Option<Part>,
}

/// The roles besides BOS and EOS: end of turn, end of message, and fill in the middle. A token
/// found by its text becomes a control token.
const ROLES: &[Role] = &[
    // The texts that mark the end of a turn are all in `ENDS_GENERATION`.
    Role { keys: &["tokenizer.ggml.eot_token_id"], texts: &[], ends_generation: true, part: None },
    Role { keys: &["tokenizer.ggml.eom_token_id"], texts: &[], ends_generation: true, part: None },
    Role {
        keys: &["tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"],
        texts: &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
        ends_generation: false,
        part: Some(Part::Prefix),
    },
    Role {
        keys: &["tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"],
        texts: &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
        ends_generation: false,
        part: Some(Part::Suffix),
    },
    Role {
        keys: &["tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"],
        texts: &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
        ends_generation: false,
        part: Some(Part::Middle),
    },
    Role {
        keys: &["tokenizer.ggml.fim_pad_token_id"],
        texts: &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"],
        ends_generation: true,
        part: None,
    },
    Role {
        keys: &["tokenizer.ggml.fim_rep_token_id"],
        texts: &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
        ends_generation: true,
        part: Some(Part::Repository),
    },
    Role {
        keys: &["tokenizer.ggml.fim_sep_token_id"],
        texts: &["<|file_sep|>"],
        ends_generation: true,
        part: Some(Part::File),
    },
];

/// The texts of tokens that end an answer, whether or not the file has a key for them. Such a token
/// becomes a control token.
const ENDS_GENERATION: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

impl Roles {
    /// Reads the roles in the file and finds the others by their texts. Corrects the kinds of
    /// tokens found by text in `vocabulary`.
    pub fn resolve<'a>(
        metadata: &Metadata<'a>,
        vocabulary: &mut Vocabulary<'a>,
        defaults: Defaults,
    ) -> Result<Self, Error> {
        let token_of = |key| token_of(metadata, vocabulary, key);
        let known = |token: Option<Token>| token.filter(|t| (*t as usize) < vocabulary.len());
        let (bos, eos, adds) = match defaults.encloses {
            true => (token_of(BOS)?.or(token_of(CLS)?), token_of(SEP)?, [Some(true); 2]),
            false => {
                let adds = [metadata.bool(ADD_BOS)?, metadata.bool(ADD_EOS)?];
                (token_of(BOS)?, token_of(EOS)?, adds)
            }
        };
        let bos = bos.or(known(defaults.bos));
        let eos = eos.or(known(defaults.eos));
        let add_bos = adds[0].unwrap_or(defaults.add_bos);
        let add_eos = adds[1].unwrap_or(false);
        if add_bos && bos.is_none() {
            return Err(Error::RoleMissing { flag: ADD_BOS, key: BOS });
        }
        if add_eos && eos.is_none() {
            return Err(Error::RoleMissing { flag: ADD_EOS, key: EOS });
        }
        let (ends_generation, parts) = ends_generation(metadata, vocabulary, eos)?;
        let fill_in_middle = FillInMiddle::of(&parts);
        let suppressed = suppressed(metadata, vocabulary)?;
        Ok(Self { bos, eos, add_bos, add_eos, ends_generation, fill_in_middle, suppressed })
    }
}

/// Reads a token number. Returns an error if it is not in the vocabulary.
pub(super) fn token_of(
    metadata: &Metadata,
    vocabulary: &Vocabulary,
    key: &'static str,
) -> Result<Option<Token>, Error> {
    match metadata.u32(key)? {
        Some(token) if token as usize >= vocabulary.len() => {
            Err(Error::RoleRange { key, token: token.into(), tokens: vocabulary.len() })
        }
        token => Ok(token),
    }
}

fn suppressed(metadata: &Metadata, vocabulary: &Vocabulary) -> Result<Vec<Token>, Error> {
    let tokens = vocabulary.len();
    let known = |token: i64| match Token::try_from(token) {
        Ok(known) if (known as usize) < tokens => Ok(known),
        _ => Err(Error::RoleRange { key: SUPPRESSED, token, tokens }),
    };
    metadata.integers(SUPPRESSED)?.unwrap_or_default().into_iter().map(known).collect()
}

fn ends_generation(
    metadata: &Metadata,
    vocabulary: &mut Vocabulary,
    eos: Option<Token>,
) -> Result<(BTreeSet<Token>, Parts), Error> {
    let mut ends = BTreeSet::from_iter(eos);
    let mut parts = Vec::new();
    for role in ROLES {
        let mut holder = None;
        for key in role.keys {
            holder = token_of(metadata, vocabulary, key)?.or(holder);
        }
        if holder.is_none() {
            holder = role.texts.iter().find_map(|text| vocabulary.token(text));
            if let Some(token) = holder {
                vocabulary.set_kind(token, Kind::Control);
            }
        }
        if role.ends_generation {
            ends.extend(holder);
        }
        parts.extend(role.part.zip(holder));
    }
    for text in ENDS_GENERATION {
        if let Some(token) = vocabulary.token(text) {
            ends.insert(token);
            vocabulary.set_kind(token, Kind::Control);
        }
    }
    // The following tokens mark parts of an answer, so they must stay visible.
    for text in ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"] {
        if let Some(token) = vocabulary.token(text) {
            vocabulary.set_kind(token, Kind::UserDefined);
        }
    }
    // If other tokens end an answer, `<|end|>` and `</s>` only end a part of it.
    let has = |text| vocabulary.token(text).is_some_and(|token| ends.contains(&token));
    let calls = has("<|call|>") || has("<|calls|>");
    let end = calls && (has("<|return|>") || has("<|flush|>"));
    let s = has("<|tool_response>") || has("<|plamo:eos|>");
    for (spared, text, kind) in [(end, "<|end|>", Kind::UserDefined), (s, "</s>", Kind::Normal)] {
        if spared
            && let Some(token) = vocabulary.token(text)
            && ends.remove(&token)
        {
            vocabulary.set_kind(token, kind);
        }
    }
    Ok((ends, parts))
}
