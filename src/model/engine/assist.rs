//! Drafts with an assistant, which has separate buffers from the engine's.

use super::{Engine, Sequence};
use crate::{
    Token,
    kv_cache::{PageTable, Shape},
    model::{
        Assistant, Attention, Error, Model, Role,
        allocator::Allocator,
        assistance::Inputs,
        attention::Schedules,
        finite::{Fault, Place, are_finite},
        forward::Forward,
        state::State,
    },
    rope::Visibility,
    threads::{Phased, Threads},
};

/// An assistant with its buffers, for one token at a time.
pub(super) struct Assistance {
    assistant: Assistant,
    state: State,
    schedules: Schedules,
    /// The output for the next token.
    output: Phased<f32>, // (1, embedding of the model)
}

impl Assistance {
    /// Creates the buffers. `pages` returns the pages that a layer of the model has for attention.
    ///
    /// # Errors
    /// If the assistant is one of another model, or the system has no memory left.
    pub fn new(
        assistant: &Assistant,
        model: &Model,
        team: &Threads,
        pages: impl Fn((usize, &Attention)) -> (Shape, Visibility),
    ) -> Result<Self, Error> {
        assistant.check(model)?;
        let layers = assistant.config().layers.iter().enumerate();
        let attending = layers.map(|(index, layer)| {
            let attention = layer.attention.as_ref()?;
            let source = attention.shared_with.unwrap_or(index);
            Some((attention, pages((source, attention))))
        });
        let schedules = Schedules::new(attending, [None; 2]);
        let mut allocator = Allocator::new(team, 1);
        let state = assistant.state(&mut allocator);
        allocator.check()?;
        let output = Phased::new(team, 1, assistant.weights().output.width)?;
        Ok(Assistance { assistant: assistant.clone(), state, schedules, output })
    }
}

impl Engine {
    /// Predicts what [`Engine::predict`] does, with the assistant.
    pub(super) fn assist(
        &mut self,
        sequence: &Sequence,
        token: Token,
        count: usize,
        choose: &mut dyn FnMut(&[f32]) -> Option<Token>,
    ) -> Result<(), Error> {
        let embedding = self.model.config().embedding;
        let last = sequence.outputs.of(sequence.tokens().len(), embedding);
        let Some(mut before) = last.map(<[f32]>::to_vec) else { return Ok(()) };
        self.forward(&[], &[]).norm(&mut before, self.model.weights().output_norm);
        let mut next = Some(token);
        for _ in 0..count {
            let Some(token) = next else { break };
            next = choose(self.assist_one(sequence, token, &mut before)?);
        }
        Ok(())
    }

    /// Returns the logits of the token after `token`. `before` is the output for the token before, and
    /// becomes the one for `token`.
    fn assist_one(
        &mut self,
        sequence: &Sequence,
        token: Token,
        before: &mut [f32],
    ) -> Result<&[f32], Error> {
        self.fill(sequence, token, sequence.positions())?;
        self.batch.without_keys = true;
        self.prepare_rope()?;
        let Some(mut own) = self.assistance.take() else { return Ok(&[]) };
        let computed = own.compute(self, &[&sequence.table], before);
        let own = self.assistance.insert(own);
        computed.map_err(|e| e.of(own.assistant.path()))?;
        let vocabulary = own.assistant.config().vocabulary;
        Ok(&own.state.logits.all()[..vocabulary])
    }
}

impl Assistance {
    /// Computes the only row of the engine's batch.
    fn compute(
        &mut self,
        engine: &Engine,
        tables: &[&PageTable],
        before: &mut [f32],
    ) -> Result<(), Error> {
        let Assistance { assistant, state, schedules, output } = self;
        let role = Role::Answer;
        schedules.divide(&engine.batch, [false; 2]);
        state.reserve_partials(&engine.team, role, schedules.partials_len(role))?;
        state.fault.clear();
        let (config, weights) = (engine.model.config(), assistant.weights());
        let forward = Forward {
            config: assistant.config(),
            weights: &weights.own,
            state,
            schedules,
            predictor: None,
            on_disk: None,
            ..engine.forward(tables, &[])
        };
        let inputs = Inputs {
            tokens: &engine.model.weights().tokens,
            scale: config.scales.embedding,
            before,
        };
        forward.run(&engine.team, |mut step| step.assist(weights, &inputs, output));
        let not_finite = |Fault { place, .. }| Error::NotFinite { feed: 0, place };
        if let Some(fault) = state.fault.found() {
            return Err(not_finite(fault));
        }
        let logits = &state.logits.all()[..assistant.config().vocabulary];
        let next = &output.all()[..before.len()];
        if !are_finite(logits) || !are_finite(next) {
            return Err(not_finite(Fault { place: Place::Output, row: 0 }));
        }
        before.copy_from_slice(next);
        Ok(())
    }
}
