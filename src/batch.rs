//! Answers to many requests at a time, in one pass over the weights for all of them.
//!
//! A [`Scheduler`] owns an [`Engine`](crate::model::Engine) and has some slots, each with a
//! sequence. You submit [`Request`]s, each with a [`Reply`] that receives its text, progress and
//! end as [`Update`]s. Then you call [`Scheduler::step`] until the scheduler is idle:
//!
//! ```no_run
//! use rope_cpu::{
//!     batch::{Options, Request, Scheduler, Update},
//!     model::{self, Engine, Model},
//!     rope::{Flags, Rope},
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::open("model.gguf")?;
//! let rope = Rope::new(model.rope_plan(&Flags::default(), 4096)?);
//! let engine = Engine::new(&model, rope, model::Options::new(4096))?;
//! let tokenizer = model.tokenizer()?;
//! let mut scheduler = Scheduler::new(engine, tokenizer, Options::new(4), Default::default());
//! for text in ["The north wind", "The sun"] {
//!     let request = Request::new(tokenizer.encode_chat(text));
//!     scheduler.submit(request, move |update| {
//!         if let Update::Generated(piece) = update {
//!             println!("{text}: {}", piece.text);
//!         }
//!     });
//! }
//! while !scheduler.is_idle() {
//!     scheduler.step();
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Scheduler::run`] and [`Handle`] serve requests from other threads, as the program's server
//! does.
//!
//! A step computes the next token of every answer, with drafts where they pay, and up to
//! [`Options::step_max`] of prompt tokens. A prompt continues from a slot, an earlier sequence or
//! the [`Disk`] that has its first tokens. With [`Options::moved_min`] it also takes over later parts
//! that were computed at other positions. If the KV cache is full, the newest answer leaves its
//! slot and resumes later. No answer depends on the others in a step.

mod disk;
mod error;
mod handle;
mod moves;
mod pace;
mod prefixes;
mod request;
mod scheduler;
mod slot;
mod status;
mod task;

pub use disk::Disk;
pub use error::Error;
pub use handle::{Command, Handle};
pub use moves::LEAST as MOVED_LEAST;
pub use request::{Generated, Outcome, Reading, Reply, Request, Scales, Update, Wanted};
pub use scheduler::{Options, Scheduler};
pub use status::{SlotState, State, Status};
