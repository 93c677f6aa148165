//! Continuous batching: computes answers to many requests in one pass over the weights.
//!
//! A [`Scheduler`] owns an [`Engine`](crate::model::Engine) and a fixed number of slots, each with
//! a sequence. You submit [`Request`]s, each with a [`Reply`] that receives [`Update`]s: progress,
//! text and the end. Then you call [`Scheduler::step`] until the scheduler is idle:
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
//! To serve requests from other threads, call [`Scheduler::run`] on a thread, and send it requests
//! through a [`Handle`]. The program's server works like this.
//!
//! A step computes the next token of every answer, with drafts where they pay, and prompt tokens
//! for up to [`Options::step_max`]. A prompt reuses the longest prefix that a slot, an earlier
//! sequence or the [`Disk`] has computed. With [`Options::moved_min`] it also reuses later parts
//! that were computed at other positions. If the KV cache is full, the newest answer is preempted
//! and resumes later. Answers in the same step do not affect each other.

mod disk;
mod error;
mod handle;
mod moves;
mod options;
mod pace;
mod prefixes;
mod request;
mod scheduler;
mod slot;
mod status;
mod task;
mod turns;
mod updates;

pub use disk::Disk;
pub use error::Error;
pub use handle::{Command, Handle};
pub use moves::LEAST as MOVED_LEAST;
pub use options::Options;
pub use request::{Generated, Outcome, Reading, Reply, Request, Scales, Update, Wanted};
pub use scheduler::Scheduler;
pub use status::{SlotState, State, Status};
pub use turns::Turns;
pub(crate) use updates::Heard;
pub use updates::{Answered, Collected, Updates};
