//! What the requests to a model share.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use rope_cpu::{
    Token,
    batch::{Handle, Outcome, Request, Scales},
    chat::Template,
    constraint::{self, Vocabulary},
    generate,
    model::{Model, Pooling, memory::Need},
    rope::Plan,
    runtime::Runtime,
    sample::Settings,
    tokenizer::Tokenizer,
};
use tokio::sync::oneshot;

use super::{
    answers::{self, Collected},
    body,
    changing::ChangingLines,
    chat::Rendered,
    compiling::Compiling,
    echoes::{Echoes, Listener},
    error::ApiError,
    latency::Latency,
    log::Record,
    memory::{self, Held, Memory},
    options::Options,
    owner::Owner,
    parameters::Parameters,
    slot_action::{SlotAction, SlotResult},
    updates::Updates,
};

/// The maximum number of biases in all answers of a request: more than the largest vocabulary.
const BIASES_MAX: usize = 1 << 18;

/// Options with which a prompt fits that is longer than the context.
#[derive(Clone, Debug)]
pub struct Longer {
    /// The options, such as `-c 72k --rope-scaling auto`.
    pub options: String,
    /// The options, and the memory that a slot then needs.
    pub text: String,
}

/// An open model with its scheduler's thread.
pub struct Opened {
    /// What requests need of it.
    pub app: Arc<App>,
    /// The scheduler's thread, which ends when this is dropped.
    pub runtime: Runtime,
}

/// A loaded model and its scheduler.
pub struct App {
    /// The options of the server.
    pub options: Options,
    /// The loaded model.
    pub model: Model,
    /// Chat template, or why the model has none.
    pub template: Result<Template, String>,
    /// Vocabulary of grammars, or why it is missing. Set by the first request with a grammar: see
    /// [`App::vocabulary`].
    pub vocabulary: OnceLock<Result<Vocabulary, String>>,
    /// The source of the chat template.
    pub template_source: String,
    /// The name of the model in answers.
    pub alias: String,
    /// Default settings of the sampler.
    pub sampling: Settings,
    /// Default scales of adapters.
    pub scales: Mutex<Scales>,
    /// How the embeddings of tokens become the embedding of a text.
    pub pooling: Pooling,
    /// The context of a slot, in positions.
    pub context: usize,
    /// Maximum tokens of a sequence.
    pub capacity: usize,
    /// The RoPE plan.
    pub plan: Plan,
    /// The description of the RoPE plan.
    pub rope: String,
    /// The warnings about the RoPE plan.
    pub warnings: Vec<String>,
    /// Memory of one full context.
    pub memory: Need,
    /// Memory used by the bodies and answers of requests.
    pub requests_memory: Memory,
    /// The fingerprint of the model, if slots can be saved.
    pub fingerprint: Option<u128>,
    /// Proposes options with which a prompt of a number of tokens fits.
    pub longer: Box<dyn Fn(usize) -> Longer + Send + Sync>,
    /// When the model was loaded.
    pub loaded: SystemTime,
    /// Sends jobs to the scheduler.
    pub scheduler: Handle,
    /// Times that clients wait for tokens.
    pub latency: Arc<Latency>,
    /// Lines of prompts that change at each request.
    pub changing: ChangingLines,
    /// Answers that later prompts repeat.
    pub echoes: Arc<Echoes>,
    /// Grammars that wait to be compiled.
    pub compiling: Compiling,
}

impl App {
    /// Returns the tokenizer.
    ///
    /// # Errors
    /// If the model has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer<'_>, ApiError> {
        self.model.tokenizer().map_err(ApiError::internal)
    }

    /// Returns the vocabulary of grammars. The first call prepares it, so a server without grammars
    /// saves the time and memory.
    ///
    /// # Errors
    /// If grammars cannot use the model's tokens.
    pub fn vocabulary(&self) -> Result<&Vocabulary, ApiError> {
        let tokenizer = self.tokenizer()?;
        let vocabulary = self
            .vocabulary
            .get_or_init(|| constraint::vocabulary(tokenizer).map_err(|e| e.to_string()));
        vocabulary.as_ref().map_err(ApiError::unsupported)
    }

    /// Returns the default scales of adapters.
    pub fn adapter_scales(&self) -> Scales {
        self.scales.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the default scales of adapters for later requests.
    pub fn set_adapter_scales(&self, scales: Scales) {
        *self.scales.lock().unwrap_or_else(PoisonError::into_inner) = scales;
    }

    /// Returns the number of the model's parameters.
    pub fn parameters(&self) -> u64 {
        self.model.gguf().tensors().iter().map(|tensor| tensor.elements()).sum()
    }

    /// Returns when the model was loaded, in seconds since 1970.
    pub fn created(&self) -> u64 {
        self.loaded.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    /// Requests an answer to each prompt. Each update has the index of its prompt.
    ///
    /// # Errors
    /// If a prompt is empty or too long, or too many requests wait.
    pub fn submit(
        &self,
        prompts: Vec<Vec<Token>>,
        parameters: &Parameters,
    ) -> Result<Updates, ApiError> {
        let Parameters { request, conversation } = parameters;
        for prompt in &prompts {
            if prompt.is_empty() {
                return Err(ApiError::invalid(generate::Error::PromptEmpty));
            }
            // Leave room for at least one token of an answer.
            let answer = usize::from(request.pooling.is_none());
            if prompt.len().saturating_add(answer) > self.capacity {
                return Err(self.context_exceeded(prompt.len()));
            }
        }
        if let Some(record) = Record::current()
            && let Ok(tokenizer) = self.tokenizer()
        {
            let text = |prompt: &[Token]| {
                String::from_utf8_lossy(&tokenizer.decode(prompt, true)).into_owned()
            };
            prompts.iter().for_each(|prompt| record.prompt(|| text(prompt)));
        }
        // Each answer has a list of its own.
        let given = request.sampling.logit_bias.len() - self.sampling.logit_bias.len();
        let biases = given.saturating_mul(prompts.len());
        if biases > BIASES_MAX {
            let expected = format!("at most {BIASES_MAX} biases in all answers, not {biases}");
            return Err(ApiError::field("logit_bias", expected));
        }
        // The form of the answer may keep a copy.
        let tokens = prompts.iter().map(Vec::len).fold(0, usize::saturating_add);
        let mut held = self.hold();
        held.add(tokens.saturating_mul(2 * size_of::<Token>()))?;
        let (updates, replies) = Updates::new(
            prompts.len(),
            self.latency.clone(),
            self.options.listen.sse_ping_interval,
            held,
        );
        let listener = |rendered: &Arc<Rendered>| {
            Listener::new(rendered.clone(), self.model.clone(), self.echoes.clone())
        };
        let updates = updates.heard_by(conversation.as_ref().map(listener));
        let requests = prompts.into_iter().zip(replies).zip(0..).map(|((prompt, reply), index)| {
            let owner = Owner::current().0;
            let mut request = Request { prompt, owner, ..request.clone() };
            // Makes answers to the same prompt differ.
            request.sampling.seed = request.sampling.seed.map(|seed| seed.wrapping_add(index));
            (request, reply)
        });
        self.scheduler.submit(requests.collect(), self.options.requests.max_queue)?;
        Ok(updates)
    }

    /// Requests an answer to each prompt, and waits for all of them. Their memory is reserved before
    /// they are computed, and counts until the reservation is dropped.
    ///
    /// # Errors
    /// As for [`App::submit`], if an answer fails, or if there is not enough memory.
    pub async fn collect(
        &self,
        prompts: Vec<Vec<Token>>,
        parameters: &Parameters,
    ) -> Result<(Vec<Arc<Collected>>, Held), ApiError> {
        let mut held = self.hold();
        answers::reserve(&mut held, self, &prompts, parameters)?;
        let count = prompts.len();
        let updates = self.submit(prompts, parameters)?;
        answers::collect(updates, count, held).await
    }

    /// Requests the answer to a prompt, and waits for it. Returns its text and its end.
    ///
    /// # Errors
    /// As for [`App::collect`].
    pub async fn collect_one(
        &self,
        prompt: Vec<Token>,
        parameters: &Parameters,
    ) -> Result<(String, Outcome), ApiError> {
        let (answers, _held) = self.collect(vec![prompt], parameters).await?;
        let answer = answers.into_iter().next().and_then(Arc::into_inner).unwrap_or_default();
        let outcome = answer.outcome.ok_or_else(|| ApiError::internal("the answer has no end"))?;
        Ok((answer.text, outcome))
    }

    /// Returns a reservation of memory without bytes.
    pub fn hold(&self) -> Held {
        let body_max = body::largest(self.options.listen.body_max, self.context);
        self.requests_memory.hold(memory::largest(body_max))
    }

    /// Returns the error for a prompt that does not fit, with options with which it does.
    pub fn context_exceeded(&self, tokens: usize) -> ApiError {
        ApiError::context_exceeded(tokens, self.context, Some(&(self.longer)(tokens)))
    }

    /// Acts on the sequence of a slot after the current step.
    ///
    /// # Errors
    /// If the slot does not exist or is in use, or the file cannot be read or written.
    pub async fn act(&self, id: usize, action: SlotAction) -> Result<SlotResult, ApiError> {
        let (reply, result) = oneshot::channel();
        let Owner(owner) = Owner::current();
        self.scheduler.act(move |scheduler| {
            let slot = scheduler.slot(id, owner).map_err(ApiError::from);
            let result = slot.and_then(|(engine, sequence)| action.apply(engine, sequence));
            // The client may have closed its connection.
            let _ = reply.send(result);
        })?;
        let stopped = |_| ApiError::unavailable("the scheduler has stopped");
        result.await.map_err(stopped)?
    }
}
