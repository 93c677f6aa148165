//! The scheduler's reads and writes of the cache on disk.

use std::{
    cmp::Reverse,
    time::{Duration, SystemTime},
};

use tracing::warn;

use super::{Scheduler, WORTH_WAITING};
use crate::server::{disk::Disk, slot::Slot};

/// The share of the memory of keys and values from which sequences are written to disk before they
/// leave it: 1 / 2. When the memory is full it is too late, since steps do not wait for the disk.
const FULL_SOON: usize = 2;

impl Scheduler<'_> {
    /// Takes the sequences that were loaded into memory. If no answer can go on before one is loaded or
    /// saved, waits a little.
    pub(super) fn take_loaded(&mut self) {
        let wait = self.running() == 0 && !self.waiting.is_empty();
        if let Some(disk) = &mut self.disk {
            disk.loaded(wait).into_iter().for_each(|sequence| self.prefixes.keep(sequence));
        }
    }

    /// Returns whether a waiting request should wait until a file is loaded that has many more of its
    /// first tokens than the memory, which has `reused`. Begins to load it, once for a request.
    pub(super) fn awaits_file(&mut self, index: usize, reused: usize) -> bool {
        let job = &self.waiting[index];
        let keeps = |disk: &&Disk| job.reuse && disk.keeps(&job.adapter_scales);
        let Some(disk) = self.disk.as_ref().filter(keeps) else { return false };
        let Some(file) = disk.longest(&job.prompt) else { return false };
        if file.shared.min(job.prompt.len() - 1) < reused + WORTH_WAITING {
            return false;
        }
        if file.loading {
            return true;
        }
        if job.restored {
            // It was of no use: the RoPE frequencies may be others, or a window has moved on.
            return false;
        }
        if !self.make_room(file.bytes) {
            // What is being saved may leave the memory then.
            return self.disk.as_ref().is_some_and(|disk| disk.saving());
        }
        let job = &mut self.waiting[index];
        job.restored = true;
        if let Some(disk) = &mut self.disk {
            disk.load(&job.prompt);
        }
        true
    }

    /// Removes sequences that no answer needs until `bytes` of keys and values are free. Returns whether
    /// they are.
    fn make_room(&mut self, bytes: u64) -> bool {
        loop {
            let pool = self.engine.pool();
            if pool.limit_bytes().saturating_sub(pool.used_bytes()) as u64 >= bytes {
                return true;
            }
            if self.prefixes.remove_oldest() {
                continue;
            }
            let Some(slot) = oldest_idle(&mut self.slots) else { return false };
            slot.sequence = self.engine.sequence();
        }
    }

    /// Begins to write the least recently used sequence that only the memory has, if that is full soon.
    pub(super) fn save_oldest(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        let pool = self.engine.pool();
        if disk.saving() || pool.used_bytes() < pool.limit_bytes() / FULL_SOON {
            return;
        }
        let mut idle: Vec<_> = self.slots.iter().filter(|slot| slot.task().is_none()).collect();
        idle.sort_by_key(|slot| slot.last_use);
        let idle = idle.into_iter().map(|slot| &slot.sequence);
        if let Some(sequence) = self.prefixes.iter().chain(idle).find(|one| !disk.has(one)) {
            disk.save(sequence, SystemTime::now());
        }
    }

    /// Waits a little for what is being saved, whose memory may be free then. Returns whether there is
    /// anything.
    pub(super) fn await_saved(&mut self) -> bool {
        let Some(disk) = self.disk.as_mut().filter(|disk| disk.saving()) else { return false };
        disk.loaded(true).into_iter().for_each(|sequence| self.prefixes.keep(sequence));
        true
    }

    /// Writes all sequences to disk, the most recently used first, as far as there is time.
    pub(super) fn save_all(&mut self) {
        let Some(mut disk) = self.disk.take() else { return };
        self.slots.sort_by_key(|slot| Reverse(slot.last_use));
        let of_slots = self.slots.iter().map(|slot| &slot.sequence);
        let mut used = SystemTime::now();
        for sequence in of_slots.chain(self.prefixes.iter().rev()) {
            disk.save(sequence, used);
            // Files are in the same order.
            used -= Duration::from_millis(10);
        }
        let left = disk.close(self.status.end.get().copied());
        if left > 0 {
            warn!(
                target: "cache",
                "the time of --drain-timeout is over: {left} conversations are not on disk"
            );
        }
    }
}

/// Returns the idle slot that was not used for longest, of those with tokens.
pub(super) fn oldest_idle(slots: &mut [Slot]) -> Option<&mut Slot> {
    let idle = slots.iter_mut().filter(|slot| slot.task().is_none());
    let idle = idle.filter(|slot| !slot.sequence.tokens().is_empty());
    idle.min_by_key(|slot| slot.last_use)
}
