//! A scheduler with a tiny model, and replies that keep what they receive.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use rope_cpu::{
    Token,
    batch::{self, Error, Outcome, Reply, Request, Scheduler, Status, Update},
    generate::Limits,
    kv_cache::CacheType,
    model::{Engine, Model, Options},
    rope::{Flags, Rope},
    sample::{Settings, temperature},
};

use rope_cpu_testing::reader::tiny_reader;

/// The positions of a context: a few pages.
pub const CONTEXT: usize = 1024;

/// The settings of a scheduler that tests vary.
pub struct Setup {
    pub micro_batch: usize,
    pub cache_bytes: usize,
    pub flags: Flags,
    pub options: batch::Options,
}

impl Setup {
    pub fn new(slots: usize) -> Self {
        let options = batch::Options::new(slots);
        Setup { micro_batch: 32, cache_bytes: usize::MAX, flags: Flags::default(), options }
    }
}

/// Runs `test` with a model that has a tokenizer, and whose answers have no end of their own.
pub fn with_model(test: impl FnOnce(&Model)) {
    test(&Model::open(tiny_reader(7, true).path()).unwrap());
}

pub fn engine(model: &Model, setup: &Setup) -> Engine {
    let plan = model.rope_plan(&setup.flags, CONTEXT).unwrap();
    let options = Options {
        micro_batch: setup.micro_batch,
        keys: CacheType::F32,
        values: CacheType::F32,
        cache_bytes: setup.cache_bytes,
        threads: 2.into(),
        ..Options::new(CONTEXT)
    };
    Engine::new(model, Rope::new(plan), options).unwrap()
}

pub fn scheduler(model: &Model, setup: Setup) -> (Scheduler<'_>, Arc<Status>) {
    let status = Arc::new(Status::default());
    let engine = engine(model, &setup);
    let tokenizer = model.tokenizer().unwrap();
    (Scheduler::new(engine, tokenizer, setup.options, status.clone()), status)
}

/// Runs `test` with a scheduler.
pub fn with_scheduler(setup: Setup, test: impl FnOnce(&mut Scheduler<'_>, &Status)) {
    with_model(|model| {
        let (mut scheduler, status) = scheduler(model, setup);
        test(&mut scheduler, &status);
    });
}

/// Returns tokens that differ for different seeds from the first one on, and do not repeat soon.
pub fn tokens(seed: usize, count: usize) -> Vec<Token> {
    let token = |i: usize| 1 + ((i * i + 7 * i * seed + seed) % 37) as Token;
    (0..count).map(token).collect()
}

/// Returns a request for `tokens_max` random tokens after a prompt.
pub fn request(prompt: Vec<Token>, tokens_max: usize) -> Request {
    let sampling = Settings { seed: Some(prompt.len() as u32), ..Settings::default() };
    Request {
        sampling: sampling.with(&temperature::TEMPERATURE, 0.9),
        limits: Limits { tokens_max: Some(tokens_max), ignore_end: true, ..Limits::default() },
        ..Request::new(prompt)
    }
}

/// The updates of an answer. A clone receives them for the original.
#[derive(Clone, Default)]
pub struct Inbox {
    updates: Arc<Mutex<Vec<Update>>>,
    closed: Arc<AtomicBool>,
    full: Arc<AtomicBool>,
}

impl Reply for Inbox {
    fn update(&mut self, update: Update) {
        self.updates.lock().unwrap().push(update);
    }

    fn is_ready(&self) -> bool {
        !self.full.load(Relaxed)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }
}

impl Inbox {
    pub fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Sets whether the reply has no room.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Relaxed);
    }

    /// Returns the tokens so far.
    pub fn tokens(&self) -> Vec<Token> {
        self.all(|update| match update {
            Update::Generated(generated) => generated.token,
            _ => None,
        })
    }

    /// Returns the number of tokens of the prompt that are read or were in the cache.
    pub fn read(&self) -> usize {
        let read = self.all(|update| match update {
            Update::Read(reading) => Some(reading.processed),
            _ => None,
        });
        read.last().copied().unwrap_or(0)
    }

    /// Returns the end, if the answer has ended.
    #[track_caller]
    pub fn outcome(&self) -> Option<Outcome> {
        let ends = self.all(|update| match update {
            Update::Ended(outcome) => Some(outcome.clone()),
            Update::Failed(error) => panic!("{error}"),
            _ => None,
        });
        assert!(ends.len() < 2, "{ends:?}");
        ends.into_iter().next()
    }

    /// Returns the error, if the answer has failed. Nothing follows it.
    pub fn error(&self) -> Option<Error> {
        let mut updates = self.updates.lock().unwrap();
        match updates.pop()? {
            Update::Failed(error) => Some(error),
            other => {
                updates.push(other);
                None
            }
        }
    }

    fn all<T>(&self, part: impl FnMut(&Update) -> Option<T>) -> Vec<T> {
        self.updates.lock().unwrap().iter().filter_map(part).collect()
    }
}

/// Submits a request.
pub fn submit(scheduler: &mut Scheduler<'_>, request: Request) -> Inbox {
    let inbox = Inbox::default();
    scheduler.submit(request, inbox.clone());
    inbox
}

/// Computes steps while `condition` holds, at most a thousand.
#[track_caller]
pub fn step_while(scheduler: &mut Scheduler<'_>, mut condition: impl FnMut() -> bool) -> usize {
    let mut steps = 0;
    while condition() {
        assert!(steps < 10_000 && !scheduler.is_idle(), "after {steps} steps");
        scheduler.step();
        steps += 1;
    }
    steps
}

/// Computes steps until all answers have ended.
#[track_caller]
pub fn finish(scheduler: &mut Scheduler<'_>) -> usize {
    let mut steps = 0;
    while !scheduler.is_idle() {
        assert!(steps < 10_000);
        scheduler.step();
        steps += 1;
    }
    steps
}

/// Returns the tokens of an answer that is computed alone.
pub fn alone(request: Request) -> Vec<Token> {
    let mut found = Vec::new();
    with_scheduler(Setup::new(1), |scheduler, _| {
        let inbox = submit(scheduler, Request { slot: None, ..request });
        finish(scheduler);
        found = inbox.tokens();
    });
    found
}
