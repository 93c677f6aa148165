//! Time that does not depend on what else the machine does.

use std::time::Duration;

/// Returns the processor time of the current thread, to measure its work. Unlike a clock, it stops
/// while other programs have the processor. On Windows it is a clock.
pub fn processor_time() -> Duration {
    #[cfg(unix)]
    {
        use nix::time::{ClockId, clock_gettime};
        clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
    }
    #[cfg(not(unix))]
    {
        use std::{sync::LazyLock, time::Instant};
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        START.elapsed()
    }
}
