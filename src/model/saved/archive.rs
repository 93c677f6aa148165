//! Saving and restoring sequences on any thread.

use std::{
    io::{self, Read, Write},
    sync::Arc,
};

use twox_hash::XxHash3_128;

use super::{
    CHECKSUM, Checksummed, Error, content, fingerprint::with_scales, header::Header, hexadecimal,
};
use crate::{
    Token,
    model::{Options, Sequence},
    rope::Plan,
    settings::Setting,
    threads::Threads,
};

/// Saves and restores the sequences of an engine, which may compute meanwhile: its threads copy a page
/// at a time between two steps.
pub struct Archive {
    /// The fingerprint of the model, with the scales of adapters that `empty` has.
    pub(super) model: u128,
    pub(super) plan: Plan,
    pub(super) options: Options,
    pub(super) capacity: usize,
    pub(super) vocabulary: usize,
    pub(super) empty: Sequence,
    pub(super) team: Arc<Threads>,
}

impl Archive {
    /// Writes a sequence like [`Engine::save`](crate::model::Engine::save).
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn save(&self, sequence: &Sequence, len: usize, to: impl Write) -> io::Result<usize> {
        let len = len.min(sequence.uninterrupted_prefix());
        let len = sequence.reusable(&self.plan, len, len);
        let mut to = Checksummed::new(to);
        self.header(sequence, len).write(&mut to)?;
        for token in &sequence.tokens()[..len] {
            to.write_all(&token.to_le_bytes())?;
        }
        sequence.table.write(&self.team, len, &mut to)?;
        let sum = to.sum();
        to.write_all(&sum)?;
        to.flush()?;
        Ok(len)
    }

    /// Reads a sequence like [`Engine::restore`](crate::model::Engine::restore) into an empty one.
    ///
    /// # Errors
    /// If the file is damaged, or is for another model or other settings.
    pub(super) fn restore(
        &self,
        sequence: &mut Sequence,
        from: impl Read,
        size: u64,
    ) -> Result<(), Error> {
        let mut from = Checksummed::new(from);
        let tokens = self.read_tokens(sequence, &mut from, size)?;
        let read = sequence.table.read(&self.team, tokens.len(), &mut from);
        let sum = from.sum();
        let mut expected = [0; CHECKSUM];
        let read = read.and_then(|()| from.read_exact(&mut expected));
        let known = |token: &Token| (*token as usize) < self.vocabulary;
        if read.is_err() || sum != expected || !tokens.iter().all(known) {
            sequence.table.truncate(0);
            read?;
            return Err(Error::Damaged("its content is invalid"));
        }
        sequence.resume(tokens, &self.plan);
        Ok(())
    }

    /// Returns the sequence of a file of `size` bytes.
    ///
    /// # Errors
    /// If the file is damaged, or is for another model or other settings.
    pub fn sequence(&self, from: impl Read, size: u64) -> Result<Sequence, Error> {
        let mut sequence = self.empty.clone();
        self.restore(&mut sequence, from, size)?;
        Ok(sequence)
    }

    /// Returns the tokens of a file of `size` bytes, from its beginning only: whether the rest is
    /// damaged is not known.
    ///
    /// # Errors
    /// If the beginning is damaged, or the file is for another model or other settings.
    pub fn tokens(&self, from: impl Read, size: u64) -> Result<Vec<Token>, Error> {
        self.read_tokens(&self.empty, &mut Checksummed::new(from), size)
    }

    /// Returns a name for a sequence of these tokens: a hash of all that determines its keys and
    /// values.
    pub fn name(&self, tokens: &[Token]) -> String {
        let Header { model, rope, keys, values, .. } = self.header(&self.empty, tokens.len());
        let mut hash = XxHash3_128::new();
        hash.write(format!("{model} {rope} {keys} {values}").as_bytes());
        tokens.iter().for_each(|token| hash.write(&token.to_le_bytes()));
        hexadecimal(hash.finish_128())
    }

    /// Reads the tokens of a file for a sequence.
    fn read_tokens(
        &self,
        sequence: &Sequence,
        from: &mut Checksummed<impl Read>,
        size: u64,
    ) -> Result<Vec<Token>, Error> {
        let header = Header::read(from, size)?;
        let tokens = header.tokens;
        self.check(sequence, header)?;
        let token = |_| {
            let mut token = [0; size_of::<Token>()];
            from.read_exact(&mut token)?;
            Ok::<_, io::Error>(Token::from_le_bytes(token))
        };
        Ok((0..tokens).map(token).collect::<io::Result<_>>()?)
    }

    fn header(&self, sequence: &Sequence, tokens: usize) -> Header {
        Header {
            model: hexadecimal(self.fingerprint(sequence)),
            rope: hexadecimal(XxHash3_128::oneshot(&self.plan.identity(tokens))),
            rope_line: self.plan.to_string(),
            keys: self.options.keys.name().into(),
            values: self.options.values.name().into(),
            tokens,
            content: content(sequence, tokens),
        }
    }

    /// Returns the fingerprint of the model with a sequence's scales of adapters.
    fn fingerprint(&self, sequence: &Sequence) -> u128 {
        match self.has_scales(sequence.adapter_scales()) {
            true => self.model,
            false => with_scales(self.model, sequence.adapter_scales()),
        }
    }

    /// Returns whether a sequence with these scales of adapters has those that the model was opened
    /// with, as all have that [`Archive::sequence`] returns.
    pub fn has_scales(&self, adapter_scales: &[f32]) -> bool {
        adapter_scales == self.empty.adapter_scales()
    }

    /// Checks that a file with this header is for this model, plan and options, and for the scales of
    /// a sequence.
    fn check(&self, sequence: &Sequence, written: Header) -> Result<(), Error> {
        if written.model != hexadecimal(self.fingerprint(sequence)) {
            return Err(Error::Model);
        }
        // Checksummed before the sizes are computed, which could overflow.
        let wrong_count = Err(Error::Damaged("its header does not match its size"));
        if written.tokens as u64 > written.content / size_of::<Token>() as u64 {
            return wrong_count;
        }
        if written.tokens > self.capacity {
            let context = self.options.context;
            return Err(Error::Context { tokens: written.tokens, context });
        }
        let now = self.header(&self.empty, written.tokens);
        if written.rope != now.rope {
            return Err(Error::Rope { written: written.rope_line, now: now.rope_line });
        }
        let options = &self.options;
        for (part, setting, written, now) in [
            ("keys", Setting::CACHE_TYPE_K, written.keys, options.keys.name()),
            ("values", Setting::CACHE_TYPE_V, written.values, options.values.name()),
        ] {
            if written != now {
                return Err(Error::Cache { part, setting, written, now });
            }
        }
        if written.content == now.content { Ok(()) } else { wrong_count }
    }
}
