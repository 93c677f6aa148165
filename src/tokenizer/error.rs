//! Errors of loading a tokenizer.

use thiserror::Error;

use super::pre;
use crate::{gguf::MetadataError, settings::Setting};

/// An error while loading a tokenizer. Texts from the file are escaped in messages.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum Error {
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    #[error(
        "tokenizer model {name:?} is not supported: supported are llama (SentencePiece), gpt2 \
         (byte-level BPE), gemma4 (BPE) and bert (WordPiece)"
    )]
    Model { name: String },
    #[error(
        "metadata key tokenizer.ggml.pre is missing: it names the rule that splits text into words; \
         set it with {} tokenizer.ggml.pre=str:NAME; NAME is one of {}",
        Setting::OVERRIDE_KV,
        pre::names()
    )]
    PreMissing,
    #[error(
        "pre-tokenizer {name:?} is not supported: supported are {}. If the model uses one of these \
         under another name, set it with {} tokenizer.ggml.pre=str:NAME",
        pre::names(),
        Setting::OVERRIDE_KV
    )]
    Pre { name: String },
    #[error("metadata key {key} has {len} elements, but tokenizer.ggml.tokens has {tokens}")]
    Length { key: &'static str, len: usize, tokens: usize },
    #[error("metadata key tokenizer.ggml.tokens has no tokens")]
    Empty,
    #[error("metadata key tokenizer.ggml.tokens has {len} elements, more than a token can number")]
    TooMany { len: usize },
    #[error("token {token} is not valid UTF-8: \"{text}\"")]
    Utf8 { token: u32, text: String },
    #[error("tokens {first} and {second} have the same text: {text:?}")]
    Duplicate { first: u32, second: u32, text: String },
    #[error("token {token} has the score {score}, which is not a number")]
    Score { token: u32, score: f32 },
    #[error("token {token} has the type {number}: it must be from 0 to 6")]
    Kind { token: u32, number: i64 },
    #[error("metadata key {key} is token {token}: it must be below {tokens}, the vocabulary size")]
    RoleRange { key: &'static str, token: i64, tokens: usize },
    #[error("metadata key {flag} is true, but {key}, which holds the token to add, is missing")]
    RoleMissing { flag: &'static str, key: &'static str },
    #[error("the vocabulary has no token for the byte 0x{byte:02X}: <0x{byte:02X}> is missing")]
    ByteMissing { byte: u8 },
    #[error("merge {index}, {merge:?}, is not two tokens with one space between them")]
    MergeForm { index: usize, merge: String },
    #[error("merge {index}, {merge:?}, needs the token {missing:?}, which is missing")]
    MergeToken { index: usize, merge: String, missing: String },
}
