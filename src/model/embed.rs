//! Computes embeddings of texts, and the scores of rerankers.

use bytemuck::Zeroable;
use rope_cpu_kernels::{
    Cpu, Input, Regime, Scratch,
    activations::{Span, quantize, spans_for},
    multiply,
};

use super::{
    Engine, Error, Feed, Model, Output, Pooler, Pooling, Role, adapter,
    products::Scaled,
    weights::{Classifier, Segment, SegmentTensors},
};
use crate::Token;

/// Maximum texts that are computed together. Each needs at least a page of keys and values.
pub const TEXTS_TOGETHER: usize = 8;

impl Engine {
    /// Creates a pooler for a text of `tokens` tokens, at least 1. Use it to compute embeddings together
    /// with other sequences; otherwise [`Engine::embed`] is simpler.
    ///
    /// ```no_run
    /// # use rope_cpu::{model::{Engine, Feed, Model, Options, Output, Pooling, Role}, rope::{Flags, Rope}};
    /// # let model = Model::open("all-minilm.gguf")?;
    /// # let rope = Rope::new(model.rope_plan(&Flags::default(), 512)?);
    /// # let mut engine = Engine::new(&model, rope, Options::new(512))?;
    /// # let tokens = [101, 102];
    /// let mut pooler = engine.pooler(Pooling::of(&model), tokens.len());
    /// let mut sequence = engine.sequence();
    /// let wanted = pooler.wanted();
    /// let (sequence, tokens, role) = (&mut sequence, &tokens[..], Role::Prompt);
    /// let mut feeds = [Feed { sequence, tokens, role, wanted, output: Output::Embedding }];
    /// while !feeds[0].tokens.is_empty() {
    ///     engine.step(&mut feeds, &mut |_, token, embedding| {
    ///         pooler.add(token, embedding);
    ///     })?;
    /// }
    /// println!("{:?}", pooler.finish());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pooler(&self, pooling: Pooling, tokens: usize) -> Pooler {
        Pooler::new(self.model().clone(), self.options().cpu, pooling, tokens)
    }

    /// Computes the embedding of each text, or with [`Pooling::None`] of each of its tokens. With
    /// [`Pooling::Rank`] the first number is the relevance of a [pair](Model::pair).
    ///
    /// # Errors
    /// As for [`Engine::step`] and [`Model::require_pooling`].
    ///
    /// ```no_run
    /// # use rope_cpu::model::{Engine, Model, Options, Pooling, normalized};
    /// # use rope_cpu::{rope::{Flags, Rope}, tokenizer::{Ends, Special}};
    /// let model = Model::open("all-minilm.gguf")?;
    /// let rope = Rope::new(model.rope_plan(&Flags::default(), 512)?);
    /// let mut engine = Engine::new(&model, rope, Options::new(512))?;
    /// let text = model.tokenizer()?.encode("The sky is blue.", Special::AsText, Ends::Add);
    /// let embeddings = engine.embed(&[text], Pooling::of(&model))?;
    /// println!("{:?}", normalized(&embeddings[0][0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn embed(
        &mut self,
        texts: &[Vec<Token>],
        pooling: Pooling,
    ) -> Result<Vec<Vec<Vec<f32>>>, Error> {
        self.embed_while(texts, pooling, &mut || true)
    }

    /// Computes embeddings like [`Engine::embed`], as long as `goes_on` returns `true` after each step.
    /// Then it returns the embeddings that are complete.
    ///
    /// # Errors
    /// As for [`Engine::embed`].
    pub fn embed_while(
        &mut self,
        texts: &[Vec<Token>],
        pooling: Pooling,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Vec<Vec<f32>>>, Error> {
        self.model().require_pooling(pooling)?;
        let mut embeddings = Vec::with_capacity(texts.len());
        for texts in texts.chunks(TEXTS_TOGETHER) {
            let poolers = texts.iter().map(|text| self.pooler(pooling, text.len()));
            let mut poolers: Vec<_> = poolers.collect();
            let mut sequences: Vec<_> = texts.iter().map(|_| self.sequence()).collect();
            let feeds = sequences.iter_mut().zip(texts).zip(&poolers);
            let feeds = feeds.map(|((sequence, text), pooler)| Feed {
                sequence,
                tokens: text,
                role: Role::Prompt,
                wanted: pooler.wanted(),
                output: Output::Embedding,
            });
            let mut feeds: Vec<_> = feeds.collect();
            while feeds.iter().any(|feed| !feed.tokens.is_empty()) {
                self.step(&mut feeds, &mut |feed, token, embedding| {
                    poolers[feed].add(token, embedding);
                })?;
                if !goes_on() {
                    return Ok(embeddings);
                }
            }
            drop(feeds);
            embeddings.extend(poolers.into_iter().map(Pooler::finish));
        }
        Ok(embeddings)
    }
}

impl Model {
    /// Checks that the model can compute embeddings with this pooling.
    ///
    /// # Errors
    /// For [`Pooling::Rank`], if the model is no reranker: if it has neither a classifier nor logits
    /// of the tokens `yes` and `no`, or an adapter changes these logits.
    pub fn require_pooling(&self, pooling: Pooling) -> Result<(), Error> {
        if pooling != Pooling::Rank || self.weights().head.classifier.is_some() {
            return Ok(());
        }
        if self.answers().is_none() {
            return Err(Error::NoClassifier.of(self.path()));
        }
        match self.output().is_some_and(|output| !output.additions.is_empty()) {
            true => Err(Error::from(adapter::Error::Fixed("output.weight".into())).of(self.path())),
            false => Ok(()),
        }
    }

    /// Returns the output head of a model with logits.
    fn output(&self) -> Option<&Segment<'_>> {
        self.weights().output.as_ref()?.segments.first()
    }

    /// Returns the rows of the output head for the tokens `yes` and `no`, by which rerankers without
    /// a classifier answer (Qwen3).
    fn answers(&self) -> Option<[SegmentTensors<'_>; 2]> {
        let head = self.output()?;
        let tokenizer = self.tokenizer().ok()?;
        let row = |text: &str| {
            let row = tokenizer.token(text)? as usize;
            (row < head.matrix.rows()).then(|| SegmentTensors {
                scale: head.scale,
                bias: head.bias.map(|bias| &bias[row..=row]),
                ..SegmentTensors::plain(head.matrix.part(row..row + 1))
            })
        };
        Some([row("yes")?, row("no")?])
    }

    /// Computes the layers after pooling.
    pub(super) fn after_pooling(&self, cpu: Cpu, pooling: Pooling, x: Vec<f32>) -> Vec<f32> {
        let head = &self.weights().head;
        if pooling != Pooling::Rank {
            return head.dense.iter().fold(x, |x, layer| product(cpu, layer, &x));
        }
        match &head.classifier {
            Some(Classifier { dense, output }) => {
                let mut x = x;
                if let Some(dense) = dense {
                    x = product(cpu, dense, &x);
                    x.iter_mut().for_each(|x| *x = x.tanh());
                }
                let scores = product(cpu, output, &x);
                // The classes of a causal model are the tokens of its answers.
                let classes = scores.len();
                if self.config().causal && classes > 1 { softmax(&scores) } else { scores }
            }
            None => {
                let logits = self.answers().into_iter().flatten();
                let logit = |row: SegmentTensors<'_>| product(cpu, &row, &x);
                softmax(&logits.flat_map(logit).collect::<Vec<_>>())
            }
        }
    }
}

/// Computes `W x + b`.
fn product(cpu: Cpu, layer: &SegmentTensors<'_>, x: &[f32]) -> Vec<f32> {
    let mut spans = vec![Span::zeroed(); spans_for(x.len())];
    quantize(cpu, x, &mut spans);
    let input = Input { regime: Regime::Few, tokens: 1, floats: x, spans: &spans };
    let rows = layer.matrix.rows();
    let mut y = vec![0.0; rows];
    let mut to = Scaled { to: &mut y, scale: layer.scale };
    multiply(cpu, &layer.matrix, 0..rows, input, &mut Scratch::default(), &mut to);
    if let Some(bias) = layer.bias {
        y.iter_mut().zip(bias).for_each(|(y, bias)| *y += bias);
    }
    y
}

fn softmax(x: &[f32]) -> Vec<f32> {
    let max = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let powers: Vec<_> = x.iter().map(|x| f64::from(x - max).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.into_iter().map(|power| (power / sum) as f32).collect()
}
