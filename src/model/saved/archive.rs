//! Saves and restores sequences on any thread.

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
    model::{Options, Role, Sequence},
    rope::Plan,
    settings::Setting,
    threads::Threads,
};

/// Saves and restores the sequences of an engine, while it computes. Its threads copy a page at a
/// time between two steps.
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

/// The tokens of a file, and the lengths that a sequence from it can return to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// The tokens.
    pub tokens: Vec<Token>,
    /// The lengths with a state, if layers are recurrent.
    states: Vec<usize>,
}

impl Archive {
    /// Writes a sequence like [`Engine::save`](crate::model::Engine::save).
    ///
    /// # Errors
    /// If `to` cannot be written.
    pub fn save(&self, sequence: &Sequence, len: usize, to: impl Write) -> io::Result<usize> {
        let len = self.writable(sequence, len);
        let states = sequence.table.states().lens_in_file(len);
        let mut to = Checksummed::new(to);
        self.header(sequence, len, &states).write(&mut to)?;
        for token in &sequence.tokens()[..len] {
            to.write_all(&token.to_le_bytes())?;
        }
        sequence.table.write(&self.team, len, &states, &mut to)?;
        let sum = to.sum();
        to.write_all(&sum)?;
        to.flush()?;
        Ok(len)
    }

    /// Returns how many of the first `len` tokens of a sequence [`Archive::save`] writes.
    pub(super) fn writable(&self, sequence: &Sequence, len: usize) -> usize {
        let len = len.min(sequence.uninterrupted_prefix()).min(sequence.unplaced_prefix());
        sequence.reusable(&self.plan, len, len)
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
        let Outline { tokens, states } = self.read_outline(sequence, &mut from, size)?;
        let read = sequence.table.read(&self.team, tokens.len(), &states, &mut from);
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

    /// Returns the outline of a file of `size` bytes. It reads and checks only the beginning.
    ///
    /// # Errors
    /// If the beginning is damaged, or the file is for another model or other settings.
    pub fn outline(&self, from: impl Read, size: u64) -> Result<Outline, Error> {
        self.read_outline(&self.empty, &mut Checksummed::new(from), size)
    }

    /// Returns the outline of the file that the first `len` tokens would be written to.
    pub(super) fn outline_of(&self, sequence: &Sequence, len: usize) -> Outline {
        let tokens = sequence.tokens()[..len].to_vec();
        Outline { tokens, states: sequence.table.states().lens_in_file(len) }
    }

    /// Returns how many of the first `len` tokens of a file can be reused in a sequence of `total`
    /// tokens, like [`Engine::reusable`](crate::model::Engine::reusable).
    pub fn reusable(&self, outline: &Outline, len: usize, total: usize) -> usize {
        let (Archive { plan, empty, .. }, written) = (self, outline.tokens.len());
        match plan.by_position() || plan.effective_length(total) == plan.effective_length(written) {
            true => empty.table.rewind_point_of_file(written, &outline.states, len),
            false => 0,
        }
    }

    /// Returns a name for a sequence of these tokens: a hash of everything that determines its keys
    /// and values.
    pub fn name(&self, tokens: &[Token]) -> String {
        let header = self.header(&self.empty, tokens.len(), &[]);
        let Header { model, rope, keys, values, sparse_prompt, .. } = header;
        let mut hash = XxHash3_128::new();
        hash.write(format!("{model} {rope} {keys} {values}").as_bytes());
        hash.write(sparse_prompt.unwrap_or_default().as_bytes());
        tokens.iter().for_each(|token| hash.write(&token.to_le_bytes()));
        hexadecimal(hash.finish_128())
    }

    /// Reads the beginning of a file for a sequence.
    fn read_outline(
        &self,
        sequence: &Sequence,
        from: &mut Checksummed<impl Read>,
        size: u64,
    ) -> Result<Outline, Error> {
        let header = Header::read(from, size)?;
        let (tokens, states) = (header.tokens, header.states.clone());
        self.check(sequence, header)?;
        let token = |_| {
            let mut token = [0; size_of::<Token>()];
            from.read_exact(&mut token)?;
            Ok::<_, io::Error>(Token::from_le_bytes(token))
        };
        let tokens = (0..tokens).map(token).collect::<io::Result<_>>()?;
        Ok(Outline { tokens, states })
    }

    fn header(&self, sequence: &Sequence, tokens: usize, states: &[usize]) -> Header {
        Header {
            model: hexadecimal(self.fingerprint(sequence)),
            rope: hexadecimal(XxHash3_128::oneshot(&self.plan.identity(tokens))),
            rope_line: self.plan.to_string(),
            keys: self.options.keys.name().into(),
            values: self.options.values.name().into(),
            sparse_prompt: self.sparse_prompt(tokens),
            tokens,
            states: states.to_vec(),
            content: content(sequence, tokens, states.len()),
        }
    }

    /// Returns a line for the settings that the keys of `tokens` tokens depend on, if prompts are sparse.
    fn sparse_prompt(&self, tokens: usize) -> Option<String> {
        let sparse = self.options.sparse_prompt.filter(|sparse| sparse.length_min < tokens);
        sparse.map(|sparse| sparse.line(Role::Prompt))
    }

    /// Returns the fingerprint of the model with a sequence's scales of adapters.
    fn fingerprint(&self, sequence: &Sequence) -> u128 {
        match self.has_scales(sequence.adapter_scales()) {
            true => self.model,
            false => with_scales(self.model, sequence.adapter_scales()),
        }
    }

    /// Returns whether these are the adapters' scales that the model was opened with. Sequences
    /// from [`Archive::sequence`] have them.
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
        if !self.empty.table.can_have(written.tokens, &written.states) {
            return wrong_count;
        }
        let now = self.header(&self.empty, written.tokens, &written.states);
        if written.rope != now.rope {
            return Err(Error::Rope { written: written.rope_line, now: now.rope_line });
        }
        if written.sparse_prompt != now.sparse_prompt {
            let [written, now] = [written.sparse_prompt, now.sparse_prompt]
                .map(|line| line.unwrap_or_else(|| "dense attention".into()));
            return Err(Error::Prompt { written, now });
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
