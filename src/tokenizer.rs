//! Converts text to tokens and back, with the vocabulary of a GGUF file.
//!
//! There are three algorithms. `spm` merges pieces by score. `bpe` splits text into words (`pre`)
//! and merges the symbols of each word by rank. `wordpiece` cuts words into the longest tokens. The
//! first two give the same tokens as llama.cpp. Control tokens in the text, such as `<|im_end|>`,
//! are cut out first (`special`).
//!
//! Token texts are borrowed from the file. Loading a vocabulary of 262,144 tokens takes tens of
//! milliseconds.

mod bpe;
mod byte_alphabet;
mod error;
mod pre;
mod roles;
mod special;
mod spm;
mod stream;
mod utf8;
mod vocabulary;
mod wordpiece;

use std::borrow::Cow;

pub use error::Error;
pub use roles::FillInMiddle;
pub use stream::Stream;
pub use vocabulary::Kind;

use crate::{Token, gguf::Metadata};
use roles::Roles;
use special::Fragment;
use vocabulary::Vocabulary;

/// How control tokens in a text are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Parses control tokens. Use it for chat templates and for prompts of the user.
    Parse,
    /// Keeps control tokens as text. Use it for untrusted input, which must not imitate the
    /// system's messages. User-defined tokens are plain text to the model, so they are parsed in
    /// either case.
    AsText,
}

/// Whether to add the tokens that mark the beginning and the end of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Adds the tokens that the vocabulary requires.
    Add,
    /// Adds none.
    Omit,
}

/// Returns the length of the longest common prefix of two texts, in tokens.
///
/// ```
/// # use rope_cpu::tokenizer::common_prefix;
/// assert_eq!(common_prefix(&[1, 2, 3], &[1, 2, 4]), 2);
/// ```
pub fn common_prefix(a: &[Token], b: &[Token]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The tokenizer of one model.
///
/// ```no_run
/// use rope_cpu::{model::Model, tokenizer::{Ends, Special}};
///
/// # fn main() -> Result<(), rope_cpu::model::Error> {
/// let model = Model::open("model.gguf")?;
/// let tokenizer = model.tokenizer()?;
/// let tokens = tokenizer.encode("Hello", Special::AsText, Ends::Omit);
/// assert_eq!(tokenizer.decode(&tokens, false), b"Hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tokenizer<'a> {
    vocabulary: Vocabulary<'a>,
    roles: Roles,
    specials: special::Finder,
    algorithm: Algorithm,
}

#[derive(Debug)]
enum Algorithm {
    Spm(spm::Spm),
    Bpe(bpe::Bpe),
    WordPiece(wordpiece::WordPiece),
}

impl<'a> Tokenizer<'a> {
    /// Creates a tokenizer from the `tokenizer.ggml` keys.
    ///
    /// # Errors
    ///
    /// Returns an error if the tokenizer is not supported or the vocabulary is inconsistent; the
    /// error names the key or the token.
    pub fn from_metadata(metadata: &Metadata<'a>) -> Result<Self, Error> {
        let model = metadata.string("tokenizer.ggml.model")?;
        let model = Metadata::require("tokenizer.ggml.model", model)?;
        let mut vocabulary = Vocabulary::from_metadata(metadata)?;
        let (algorithm, defaults) = match model {
            "llama" => {
                let spm = spm::Spm::from_metadata(metadata, &vocabulary)?;
                (Algorithm::Spm(spm), roles::Defaults::SPM)
            }
            "gpt2" | "gemma4" => {
                let (pre, spelling) = match model {
                    "gpt2" => (pre::Pre::from_metadata(metadata)?, bpe::Spelling::Bytes),
                    _ => (pre::Pre::named(model)?, bpe::Spelling::Characters),
                };
                let defaults = roles::Defaults::bpe(pre.add_bos);
                let bpe = bpe::Bpe::from_metadata(metadata, &vocabulary, pre, spelling)?;
                (Algorithm::Bpe(bpe), defaults)
            }
            "bert" => {
                let wordpiece = wordpiece::WordPiece::from_metadata(metadata, &vocabulary)?;
                (Algorithm::WordPiece(wordpiece), roles::Defaults::WORDPIECE)
            }
            other => return Err(Error::Model { name: other.into() }),
        };
        let roles = Roles::resolve(metadata, &mut vocabulary, defaults)?;
        let specials = special::Finder::new(&vocabulary, metadata)?;
        Ok(Self { vocabulary, roles, specials, algorithm })
    }

    /// Returns the tokens of a text. The text need not be UTF-8.
    ///
    /// Bytes that are not part of a character become tokens of single bytes with SentencePiece, and
    /// each becomes U+FFFD with BPE, as in llama.cpp.
    ///
    /// Some byte-level vocabularies lack bytes that never occurred in their training text, such as
    /// control characters. These bytes are dropped, as they were in training.
    pub fn encode(&self, text: impl AsRef<[u8]>, special: Special, ends: Ends) -> Vec<Token> {
        let text = text.as_ref();
        let mut tokens = Vec::with_capacity(text.len() / 3 + 2);
        if ends == Ends::Add && self.roles.add_bos {
            tokens.extend(self.roles.bos);
        }
        self.append_after(true, &mut tokens, text, special);
        if ends == Ends::Add && self.roles.add_eos {
            tokens.extend(self.roles.eos);
        }
        tokens
    }

    /// Appends the tokens of a text to the tokens before it. With SentencePiece, a text after a word
    /// does not start with the space that [`encode`](Self::encode) adds.
    ///
    /// ```no_run
    /// # use rope_cpu::{model::Model, tokenizer::{Ends, Special}};
    /// # let model = Model::open("model.gguf")?;
    /// let tokenizer = model.tokenizer()?;
    /// let mut tokens = tokenizer.encode("Every", Special::AsText, Ends::Omit);
    /// tokenizer.append(&mut tokens, "thing", Special::AsText);
    /// assert_eq!(tokenizer.decode(&tokens, false), b"Everything");
    /// # Ok::<(), rope_cpu::model::Error>(())
    /// ```
    pub fn append(&self, tokens: &mut Vec<Token>, text: impl AsRef<[u8]>, special: Special) {
        let is_special = |token: &Token| {
            matches!(self.kind(*token), Kind::Control | Kind::UserDefined | Kind::Unknown)
        };
        let after_special = tokens.last().is_none_or(is_special);
        self.append_after(after_special, tokens, text.as_ref(), special);
    }

    /// Appends the tokens of a text. `after_special` is true at the start of the input and after a
    /// special token.
    fn append_after(
        &self,
        mut after_special: bool,
        tokens: &mut Vec<Token>,
        text: &[u8],
        special: Special,
    ) {
        for fragment in self.specials.split(text, &self.vocabulary, special) {
            match fragment {
                Fragment::Token(token) => tokens.push(token),
                Fragment::Text(text) => match &self.algorithm {
                    Algorithm::Spm(spm) => {
                        spm.encode(text, after_special, &self.vocabulary, tokens)
                    }
                    Algorithm::Bpe(bpe) => bpe.encode(text, &self.vocabulary, tokens),
                    Algorithm::WordPiece(wordpiece) => {
                        wordpiece.encode(text, &self.vocabulary, tokens)
                    }
                },
            }
            after_special = matches!(fragment, Fragment::Token(_));
        }
    }

    /// Returns the tokens of a conversation as a chat template renders it.
    ///
    /// Some templates write the BOS and EOS texts themselves. If the vocabulary requires a token,
    /// it is added exactly once, as in llama.cpp.
    pub fn encode_chat(&self, rendered: impl AsRef<[u8]>) -> Vec<Token> {
        let mut text = rendered.as_ref();
        if self.roles.add_bos
            && let Some(bos) = self.roles.bos.and_then(|token| self.text(token))
        {
            text = text.strip_prefix(bos.as_bytes()).unwrap_or(text);
        }
        if self.roles.add_eos
            && let Some(eos) = self.roles.eos.and_then(|token| self.text(token))
        {
            text = text.strip_suffix(eos.as_bytes()).unwrap_or(text);
        }
        self.encode(text, Special::Parse, Ends::Add)
    }

    /// Returns the bytes of a token. They may be a part of a UTF-8 character.
    ///
    /// A control token is spelled if `show_special`, and empty otherwise. A token outside the
    /// vocabulary is empty as well: models may have more rows than tokens.
    pub fn piece(&self, token: Token, show_special: bool) -> Cow<'a, [u8]> {
        let empty = Cow::Borrowed(&[][..]);
        let Some(text) = self.vocabulary.text(token) else { return empty };
        match self.vocabulary.kind(token) {
            Kind::Unknown | Kind::Control if !show_special => empty,
            Kind::Unknown | Kind::Control | Kind::UserDefined => Cow::Borrowed(text.as_bytes()),
            Kind::Byte => vocabulary::byte_of(text).map_or(empty, |byte| Cow::Owned(vec![byte])),
            Kind::Normal => match &self.algorithm {
                Algorithm::Spm(_) | Algorithm::WordPiece(_) => spm::decode(text),
                Algorithm::Bpe(bpe) => bpe.decode(text),
            },
            Kind::Unused | Kind::Undefined => empty,
        }
    }

    /// Returns the bytes of a text: the pieces of its tokens in order. Omits the space that
    /// encoding adds at the start. Spaces before punctuation are kept, even if the model has
    /// `clean_spaces`.
    pub fn decode(&self, tokens: &[Token], show_special: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (i, &token) in tokens.iter().enumerate() {
            let piece = self.piece(token, show_special);
            let piece = match &self.algorithm {
                Algorithm::WordPiece(_) if bytes.is_empty() => {
                    piece.strip_prefix(b" ").unwrap_or(&piece)
                }
                Algorithm::Spm(spm) if i == 0 && spm.add_space_prefix => {
                    piece.strip_prefix(b" ").unwrap_or(&piece)
                }
                _ => &piece[..],
            };
            bytes.extend_from_slice(piece);
        }
        bytes
    }

    /// Returns the text of a token as the vocabulary spells it.
    pub fn text(&self, token: Token) -> Option<&'a str> {
        self.vocabulary.text(token)
    }

    /// Returns the kind of a token; [`Kind::Undefined`] if it is not in the vocabulary.
    pub fn kind(&self, token: Token) -> Kind {
        self.vocabulary.kind(token)
    }

    /// Returns the token with this text, as the vocabulary spells it.
    pub fn token(&self, text: &str) -> Option<Token> {
        self.vocabulary.token(text)
    }

    /// Returns the control token with this text.
    pub fn control(&self, text: &str) -> Option<Token> {
        self.token(text).filter(|token| self.kind(*token) == Kind::Control)
    }

    /// Returns the token that always stands for a text with [`Special::Parse`]: a control token or a
    /// user-defined token.
    pub fn special(&self, text: &str) -> Option<Token> {
        let is_special = |kind| matches!(kind, Kind::Control | Kind::UserDefined);
        self.token(text).filter(|token| is_special(self.kind(*token)))
    }

    /// Returns the beginning-of-sequence token (BOS).
    pub fn bos(&self) -> Option<Token> {
        self.roles.bos
    }

    /// Returns the end-of-sequence token (EOS).
    pub fn eos(&self) -> Option<Token> {
        self.roles.eos
    }

    /// Returns whether [`Ends::Add`] adds [`bos`](Self::bos).
    pub fn adds_bos(&self) -> bool {
        self.roles.add_bos
    }

    /// Returns whether [`Ends::Add`] adds [`eos`](Self::eos).
    pub fn adds_eos(&self) -> bool {
        self.roles.add_eos
    }

    /// Returns whether the model uses this token to end an answer.
    pub fn is_end_of_generation(&self, token: Token) -> bool {
        self.roles.ends_generation.contains(&token)
    }

    /// Returns all tokens that end an answer.
    pub fn end_of_generation(&self) -> impl Iterator<Item = Token> {
        self.roles.ends_generation.iter().copied()
    }

    /// Returns the tokens for filling a gap in a text; `None` if the model cannot fill gaps.
    pub fn fill_in_middle(&self) -> Option<FillInMiddle> {
        self.roles.fill_in_middle
    }

    /// Returns the tokens that must never be generated.
    pub fn suppressed(&self) -> &[Token] {
        &self.roles.suppressed
    }

    /// Returns the number of tokens of the vocabulary.
    pub fn len(&self) -> usize {
        self.vocabulary.len()
    }

    /// Returns whether the vocabulary is empty. This is false for every tokenizer that loads.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
