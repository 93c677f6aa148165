//! How the scheduler uses the cache on disk.

use std::{
    cmp::Reverse,
    time::{Duration, SystemTime},
};

use tracing::warn;

use super::{
    super::{Disk, moves, request::Job, slot::Slot},
    Scheduler, WORTH_WAITING,
};
use crate::Token;

/// Saving starts once 1 / `FULL_SOON` of the KV cache is used. Once the cache is full it is too
/// late, since steps do not wait for the disk.
const FULL_SOON: usize = 2;

impl Scheduler<'_> {
    /// Takes the sequences that were loaded. If all answers wait for the disk, waits a little for
    /// one to be loaded or saved.
    pub(super) fn take_loaded(&mut self) {
        let wait = self.running() == 0 && !self.waiting.is_empty();
        let Scheduler { disk, prefixes, engine, .. } = self;
        if let Some(disk) = disk {
            let loaded = disk.loaded(wait).into_iter();
            loaded.for_each(|(owner, sequence)| prefixes.keep(engine, owner, sequence));
        }
    }

    /// Returns whether a waiting request should wait for a file with a much longer prefix than the
    /// `reused` tokens. Starts to load the file, once for each request.
    pub(super) fn awaits_file(&mut self, index: usize, reused: usize) -> bool {
        let job = &self.waiting[index];
        let keeps = |disk: &&Disk| job.reuses() && disk.keeps(&job.scales);
        let Some(disk) = self.disk.as_ref().filter(keeps) else { return false };
        let Some(file) = disk.longest(&job.request) else { return false };
        if file.reusable < reused + WORTH_WAITING {
            return false;
        }
        if file.loading {
            return true;
        }
        if job.restored {
            // The file did not help: it could not be read.
            return false;
        }
        if !self.make_room(file.bytes) {
            // Sequences being saved may free their memory soon.
            return self.disk.as_ref().is_some_and(|disk| disk.saving());
        }
        let job = &mut self.waiting[index];
        job.restored = true;
        if let Some(disk) = &mut self.disk {
            disk.load(&job.request);
        }
        true
    }

    /// Returns whether a waiting request should wait for a file with a part of its prompt, after
    /// the first `reused` tokens, that no kept sequence has. Starts to load the file, once for each
    /// request.
    pub(super) fn awaits_part(&mut self, index: usize, reused: usize) -> bool {
        let job = &self.waiting[index];
        let keeps = |disk: &&Disk| !job.searched && job.reuses() && disk.keeps(&job.scales);
        let Some(disk) = self.disk.as_ref().filter(keeps) else { return false };
        if job.loaded.last().is_some_and(|name| disk.is_loading(name)) {
            return true;
        }
        let part = self.part_on_disk(job, disk, reused);
        // A loaded file that gave no part was unreadable, or was removed again to make room.
        let part = part.filter(|(name, ..)| !job.loaded.contains(name));
        let part = part.filter(|(_, bytes, loading)| *loading || self.make_room(*bytes));
        let job = &mut self.waiting[index];
        let Some((name, _, loading)) = part else {
            // All files were compared, so later steps skip the search.
            job.searched = true;
            return false;
        };
        if !loading && let Some(disk) = &mut self.disk {
            disk.load_file(&name, job.request.owner);
        }
        job.loaded.push(name);
        true
    }

    /// Finds the file with the largest part of a prompt that no kept sequence has. Returns its
    /// name, its size, and whether it is being loaded.
    fn part_on_disk(&self, job: &Job, disk: &Disk, reused: usize) -> Option<(String, u64, bool)> {
        let least = self.moved_min?;
        let (prompt, owner) = (&job.request.prompt, job.request.owner);
        let count = |texts: &[&[Token]]| moves::count(prompt, reused, least, texts);
        let blocks = moves::Blocks::of(prompt, reused);
        let mut texts: Vec<_> = self.kept(owner).map(|kept| kept.tokens()).collect();
        let known = count(&texts);
        let with = |(name, tokens, bytes, loading)| {
            texts.push(tokens);
            let moved = count(&texts);
            texts.pop();
            (moved, name, bytes, loading)
        };
        let files = disk.texts(owner).filter(|(_, tokens, ..)| blocks.any_in(tokens));
        let best = files.map(with).max_by_key(|(moved, ..)| *moved);
        let worth = best.filter(|(moved, ..)| *moved >= known + WORTH_WAITING);
        worth.map(|(_, name, bytes, loading): (_, &str, _, _)| (name.to_string(), bytes, loading))
    }

    /// Removes unused sequences until `bytes` of keys and values are free. Returns `false` if that
    /// is not enough.
    fn make_room(&mut self, bytes: u64) -> bool {
        if bytes > self.engine.pool().limit_bytes() as u64 {
            return false;
        }
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

    /// Starts to write the least recently used sequence that is not on disk, if the KV cache is
    /// nearly full.
    pub(super) fn save_oldest(&mut self) {
        let Some(disk) = &mut self.disk else { return };
        let pool = self.engine.pool();
        if disk.saving() || pool.used_bytes() < pool.limit_bytes() / FULL_SOON {
            return;
        }
        let mut idle: Vec<_> = self.slots.iter().filter(|slot| slot.task().is_none()).collect();
        idle.sort_by_key(|slot| slot.last_use);
        let idle = idle.into_iter().map(|slot| (slot.owner, &slot.sequence));
        let mut all = self.prefixes.iter().map(|kept| (kept.owner, &kept.sequence)).chain(idle);
        if let Some((owner, sequence)) = all.find(|(owner, one)| !disk.has(*owner, one)) {
            disk.save(owner, sequence, SystemTime::now());
        }
    }

    /// Waits a little for a sequence that is being saved, to free its memory. Returns `false` if
    /// none is.
    pub(super) fn await_saved(&mut self) -> bool {
        let Scheduler { disk, prefixes, engine, .. } = self;
        let Some(disk) = disk.as_mut().filter(|disk| disk.saving()) else { return false };
        let loaded = disk.loaded(true).into_iter();
        loaded.for_each(|(owner, sequence)| prefixes.keep(engine, owner, sequence));
        true
    }

    /// Writes all sequences to disk, most recently used first, until the deadline.
    pub(super) fn save_all(&mut self) {
        let Some(mut disk) = self.disk.take() else { return };
        self.slots.sort_by_key(|slot| Reverse(slot.last_use));
        let of_slots = self.slots.iter().map(|slot| (slot.owner, &slot.sequence));
        let kept = self.prefixes.iter().rev().map(|kept| (kept.owner, &kept.sequence));
        let mut used = SystemTime::now();
        for (owner, sequence) in of_slots.chain(kept) {
            disk.save(owner, sequence, used);
            // Files keep this order.
            used -= Duration::from_millis(10);
        }
        let left = disk.close(self.saved_by);
        if left > 0 {
            warn!(
                target: "cache",
                "no time left to write the cache: {left} conversations are not on disk"
            );
        }
    }
}

/// Returns the least recently used idle slot that has tokens.
pub(super) fn oldest_idle(slots: &mut [Slot]) -> Option<&mut Slot> {
    let idle = slots.iter_mut().filter(|slot| slot.task().is_none());
    let idle = idle.filter(|slot| !slot.sequence.tokens().is_empty());
    idle.min_by_key(|slot| slot.last_use)
}
