//! One step: chooses its tokens and computes them.

use super::{Engine, Feed, Output};
use crate::{
    kv_cache::{PAGE, PageTable},
    model::{
        Error, Rotation,
        batch::{Role, Row},
        finite::Fault,
        forward::Forward,
        state::LOGIT_ROWS,
    },
    threads::Workers,
};

impl Engine {
    /// Computes the next tokens of some sequences, and removes them from the feeds. Call it until
    /// all feeds are empty.
    ///
    /// A step has at most [`Options::micro_batch`](super::Options) tokens, or the number of
    /// [`Engine::limit_step`]. An encoder computes all tokens of a feed in one step, which this number
    /// does not limit. Feeds with [`Role::Answer`] come first, then prompts, each in the order of
    /// `feeds`. `each` is called for each wanted token, with the index of the feed, the index of the
    /// token in its sequence, and its [`Output`].
    ///
    /// If a sequence has other RoPE frequencies at its new length, with all tokens of the feed, the
    /// following steps first recompute its earlier tokens: see
    /// [`to_recompute`](super::Sequence::to_recompute).
    ///
    /// # Errors
    /// Before anything is computed: if a token is not in the vocabulary, or a sequence does not fit
    /// in the context or the pool. Also if a sequence is of another engine, or has other
    /// [`adapter_scales`](super::Sequence::adapter_scales) than the first one. In an encoder also if a
    /// feed is no prompt for embeddings, has more tokens than a micro-batch, or its sequence is not
    /// empty.
    ///
    /// During the computation: [`Error::NotFinite`] if a value is not finite, and [`Error::Memory`]
    /// if the system has no memory left. The sequences then keep their earlier tokens.
    pub fn step(
        &mut self,
        feeds: &mut [Feed<'_, '_>],
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), Error> {
        self.prepare(feeds)?;
        self.advance(feeds, each)
    }

    /// Computes the next tokens of feeds like [`Engine::step`], after [`Engine::prepare`].
    pub(in crate::model) fn advance(
        &mut self,
        feeds: &mut [Feed<'_, '_>],
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), Error> {
        let computed = self.gather_all(feeds).and_then(|()| self.compute(feeds, each));
        if let Err(error) = computed {
            feeds.iter_mut().for_each(|feed| feed.sequence.table.cancel());
            return Err(error);
        }
        for part in &self.batch.parts {
            let Feed { sequence, tokens, role, .. } = &mut feeds[part.feed];
            // Rows may leave out some tokens.
            let [first, last] = [part.rows.start, part.rows.end - 1];
            let count = self.batch.rows[last].position + 1 - self.batch.rows[first].position;
            if part.recomputing {
                *sequence.recomputed.get_or_insert(0) += count;
            } else {
                let (computed, rest) = tokens.split_at(count);
                sequence.tokens.extend_from_slice(computed);
                *tokens = rest;
            }
            sequence.computed += count;
            if self.assistance.is_some() {
                let embedding = self.model.config().embedding;
                let last = part.rows.end - count.min(LOGIT_ROWS)..part.rows.end;
                let rows = last.start * embedding..last.end * embedding;
                let hidden = &self.state.hidden.all()[rows];
                sequence.outputs.set(sequence.computed, hidden, embedding);
            }
            sequence.role = if part.recomputing { Role::Prompt } else { *role };
            sequence.table.commit(sequence.retained_from);
            sequence.table.set_summarized(sequence.positions());
            sequence.effective_length = self.batch.rows[part.rows.end - 1].effective_length;
            sequence.rows = Some(self.rope.keep(sequence.effective_length));
            // Answer tokens after the first may be removed again.
            let removable = match role {
                Role::Answer if !part.recomputing => count - 1,
                _ => 0,
            };
            let end = (sequence.positions() - removable).min(sequence.retained_from);
            sequence.table.release(end);
        }
        self.rope.release_unused();
        Ok(())
    }

    /// Checks that all feeds can be computed, and discards keys and values that must be recomputed.
    pub(in crate::model) fn prepare(&self, feeds: &mut [Feed<'_, '_>]) -> Result<(), Error> {
        for (index, feed) in feeds.iter().enumerate() {
            self.check(index, feed, feeds[0].sequence.adapter_scales())?;
        }
        for feed in feeds {
            self.set_frequencies(feed);
            feed.tokens = feed.sequence.skip_gap(feed.tokens);
        }
        Ok(())
    }

    /// Checks that a feed can be computed in a step with these scales of adapters.
    fn check(&self, index: usize, feed: &Feed<'_, '_>, scales: &[f32]) -> Result<(), Error> {
        let Feed { sequence, tokens, .. } = feed;
        if !sequence.table.is_of(&self.pool) {
            return Err(Error::ForeignSequence { feed: index });
        }
        if sequence.adapter_scales() != scales {
            return Err(Error::AdapterScales { feed: index });
        }
        let vocabulary = self.vocabulary();
        if let Some(&token) = tokens.iter().find(|&&token| token as usize >= vocabulary) {
            return Err(Error::Token { token, vocabulary });
        }
        let (used, more, context) = (sequence.tokens.len(), tokens.len(), self.options.context);
        if !self.rope.plan().shifts && used + more > self.capacity() {
            return Err(Error::ContextFull { context, used, more });
        }
        self.check_whole(index, feed)
    }

    /// Checks that an encoder can compute all tokens of a feed in one step.
    fn check_whole(&self, index: usize, feed: &Feed<'_, '_>) -> Result<(), Error> {
        let Feed { sequence, tokens, role, output, .. } = feed;
        let (config, micro_batch) = (self.model.config(), self.options.micro_batch);
        if config.causal || tokens.is_empty() {
            return Ok(());
        }
        if *role == Role::Answer || *output == Output::Logits {
            return config.require_logits();
        }
        if !sequence.tokens.is_empty() {
            return Err(Error::TextContinued { feed: index });
        }
        match tokens.len() > micro_batch {
            true => Err(Error::TextTooLong { tokens: tokens.len(), micro_batch }),
            false => Ok(()),
        }
    }

    /// Discards the keys and values of a feed's sequence if all tokens need the frequencies of the
    /// new length, and these are other ones.
    fn set_frequencies(&self, feed: &mut Feed<'_, '_>) {
        let Feed { sequence, tokens, .. } = feed;
        let plan = self.rope.plan();
        let length = (sequence.tokens.len() + tokens.len()).min(self.capacity());
        if plan.by_position() || tokens.is_empty() {
            return;
        }
        let effective_length = plan.effective_length(sequence.length_at(length - 1));
        if sequence.effective_length != effective_length {
            sequence.effective_length = effective_length;
            sequence.table.clear();
            sequence.computed = 0;
        }
    }

    /// Fills the batch with the next rows of all feeds.
    fn gather_all(&mut self, feeds: &mut [Feed<'_, '_>]) -> Result<(), Error> {
        self.batch.clear();
        for role in Role::ALL {
            for (index, feed) in feeds.iter_mut().enumerate() {
                self.gather(index, feed, role)?;
            }
            self.batch.end_role(role);
        }
        if self.batch.rows.is_empty() { Ok(()) } else { self.prepare_rope() }
    }

    /// Adds the next rows of a role that a feed has to the batch.
    fn gather(&mut self, index: usize, feed: &mut Feed<'_, '_>, role: Role) -> Result<(), Error> {
        let Feed { sequence, tokens, .. } = feed;
        let gaps = sequence.table.gaps().clone();
        let keys = |from: usize, tokens: usize| gaps.count(from..from + tokens);
        let recomputing = sequence.to_recompute() > 0;
        let (next_role, left) = match recomputing {
            true => (Role::Prompt, sequence.to_recompute()),
            false => (feed.role, tokens.len()),
        };
        if role != next_role {
            return Ok(());
        }
        let more = keys(sequence.positions(), left);
        let plan = self.rope.plan();
        let full = |full| Error::PoolFull { feed: index, full };
        let causal = self.model.config().causal;
        let step_tokens = if causal { self.step_tokens } else { self.options.micro_batch };
        let mut count = more.min(step_tokens.saturating_sub(self.batch.rows.len()));
        // A text that an encoder reads is never cut.
        if !causal && count < more {
            return Ok(());
        }
        if plan.shifts && count > 0 {
            if sequence.positions() == self.options.context {
                let pages = sequence.pages_to_shift();
                sequence.table.shift(&self.team, pages).map_err(full)?;
                sequence.evict(pages * PAGE);
            }
            count = count.min(self.options.context - sequence.positions());
        }
        let start = sequence.positions();
        if role == Role::Prompt && !recomputing {
            let unwanted = feed.wanted.start.saturating_sub(sequence.tokens.len());
            count = self.apart(keys(start, unwanted.min(tokens.len())), count);
        }
        if role == Role::Prompt && count < more && self.sparse[role as usize] {
            // Groups of rows that choose keys together are computed together, if the step has room.
            let end = start + count;
            let whole = end - end % self.schedules.prompt_rows(end);
            count = whole.checked_sub(start).filter(|count| *count > 0).unwrap_or(count);
        }
        let positions = gaps.keys(start..start + left).take(count);
        let end = positions.clone().last().map_or(start, |last| last + 1);
        let points = sequence.points(&(start..end), start + more, role);
        sequence.table.reserve(&self.team, start, end).map_err(full)?;
        sequence.table.reserve_states(&self.team, start..end, &points).map_err(full)?;
        let tokens = if recomputing { &sequence.tokens[sequence.computed..] } else { tokens };
        let rows = positions.map(|position| Row {
            token: tokens[position - start],
            position,
            sequence: index,
            effective_length: match plan.by_position() {
                true => plan.effective_length(sequence.length_at(position)),
                false => sequence.effective_length,
            },
        });
        self.batch.push(index, sequence.computed, recomputing, rows);
        Ok(())
    }

    /// Computes the cosines and sines that the batch needs.
    pub(super) fn prepare_rope(&mut self) -> Result<(), Error> {
        let Engine { model, rope, batch, .. } = self;
        let window = model.config().window(Rotation::Global);
        if let Some(first) = batch.rows.iter().map(|row| row.position).min() {
            rope.release_before(first);
        }
        for rows in batch.rows.chunk_by(Row::precedes) {
            let Row { position, effective_length, .. } = rows[0];
            rope.prepare_for(effective_length, position..position + rows.len(), window)?;
        }
        Ok(())
    }

    /// Computes all rows of the batch, if there are any, and passes the wanted outputs to `each`.
    fn compute(
        &mut self,
        feeds: &[Feed<'_, '_>],
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), Error> {
        if self.batch.rows.is_empty() {
            return Ok(());
        }
        let tables: Vec<_> = feeds.iter().map(|feed| &feed.sequence.table).collect();
        let scales = feeds.first().map_or(&[][..], |feed| feed.sequence.adapter_scales());
        let wanted = self.batch.parts.iter().filter(|part| !part.recomputing).flat_map(|part| {
            let (rows, wanted) = (&self.batch.rows, &feeds[part.feed].wanted);
            let token = move |row: usize| {
                part.first_token + rows[row].position - rows[part.rows.start].position
            };
            let all = part.rows.clone().map(move |row| (part.feed, token(row), row));
            all.filter(move |(_, token, _)| wanted.contains(token))
        });
        let mut wanted: Vec<_> = wanted.collect();
        self.divide(self.sparse)?;
        let all = self.layers(&tables, scales, &mut wanted)?;
        let (embeddings, logits): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|(feed, ..)| feeds[*feed].output == Output::Embedding);
        let computed = self
            .put_embeddings(&tables, scales, &embeddings, each)
            .and_then(|()| self.put_logits(&tables, scales, &logits, each));
        if let Some(all) = all {
            self.batch = all;
        }
        computed
    }

    /// Divides the attention of the batch into tasks, with memory for their results. It is dense in
    /// all layers for a role that is not `sparse`.
    pub(super) fn divide(&mut self, sparse: [bool; 2]) -> Result<(), Error> {
        let Engine { team, state, schedules, batch, .. } = self;
        schedules.divide(batch, sparse);
        state.reserve_choices(team, schedules.choices_len())?;
        for (role, _) in batch.roles.ranges() {
            state.reserve_partials(team, role, schedules.partials_len(role))?;
        }
        state.fault.clear();
        Ok(())
    }

    /// Returns the forward pass of the batch, with the tables of its sequences.
    pub(super) fn forward<'a>(
        &'a self,
        tables: &'a [&'a PageTable],
        scales: &'a [f32],
    ) -> Forward<'a> {
        let Workers { answers, prompts } = self.options.threads;
        Forward {
            config: self.model.config(),
            weights: self.model.weights(),
            state: &self.state,
            tables,
            rope: &self.rope,
            cpu: self.options.cpu,
            batch: &self.batch,
            scales,
            schedules: &self.schedules,
            predictor: self.predictor(),
            workers: if self.batch.roles.prompts > 0 { prompts } else { answers },
            on_disk: self.on_disk.as_ref(),
            observer: self.observer.as_ref(),
            probe: self.probe.as_ref(),
            inputs: self.inputs.as_ref(),
        }
    }

    /// Returns an error if the pass found a value that is not finite.
    pub(super) fn check_fault(&self) -> Result<(), Error> {
        self.state.fault.found().map_or(Ok(()), |fault| Err(self.not_finite(fault)))
    }

    pub(super) fn not_finite(&self, Fault { place, row }: Fault) -> Error {
        Error::NotFinite { feed: self.batch.rows[row].sequence, place }
    }
}
