//! The text of `/stats`.

use super::{summary, writer::Writer};
use crate::cli::flags;
use rope_cpu::{
    model::memory::Bytes,
    platform::{self, processors::plural},
};

/// Returns the lines of `/stats`: the context in use, the RoPE plan, the speed, the memory, and the
/// model.
pub fn stats(writer: &Writer) -> String {
    let engine = writer.scheduler.engine();
    let (plan, context) = (engine.rope().plan(), engine.options().context);
    let used = writer.sequence().tokens().len();
    let (trained, share) = (plan.context_train.value, 100.0 * used as f64 / context as f64);
    let beyond = match context > trained {
        true => format!(", extended from the trained {trained}"),
        false => format!("; trained: {trained}"),
    };
    let mut lines = format!(
        "context {} of {context} used ({share:.0} %){beyond}\n{}\n{}\nmemory  {} of keys and values",
        plural(used, "token"),
        flags::line(plan),
        summary::speeds(&writer.total),
        Bytes(engine.pool().bytes() as u64),
    );
    if let Some(peak) = platform::memory::peak_resident() {
        lines += &format!("; {} peak, including mapped weights", Bytes(peak));
    }
    lines + "\n" + &flags::with_flags(&writer.header)
}
