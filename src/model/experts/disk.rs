//! Reads experts that do not fit in memory: tells the system in advance which ones are needed next.
//!
//! Otherwise the system reads a few pages at each page fault. A prompt also reads the experts of all
//! layers in turn, so the system would drop each expert just before it is read again. Therefore some
//! layers keep theirs in memory.

use std::sync::mpsc::{SyncSender, sync_channel};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{
    model::{
        Error, Model,
        forward::Step,
        weights::{Branch, Linear, Mixer, Mixture, Network, Weights},
    },
    platform::pages::{Reading, advise},
};

/// How experts are read that do not all fit in memory.
#[derive(Debug)]
pub struct OnDisk {
    /// The number of first layers that keep their experts in memory while prompts are read.
    kept: usize,
    /// Sends layers to a thread that reads them, as the system call returns only when most is read.
    next: SyncSender<usize>,
    /// Ends when `next` is dropped.
    _thread: ThreadPool,
}

impl OnDisk {
    /// Returns how experts are read if they can have `bytes` of memory; `None` if all fit.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn new(model: &Model, bytes: u64) -> Result<Option<Self>, Error> {
        let sizes = bytes_by_layer(model.weights());
        if sizes.iter().sum::<u64>() <= bytes {
            return Ok(None);
        }
        // The system drops the pages that were not read for the longest time, even those of kept layers.
        // So leave the memory of one more layer.
        let spare = sizes.iter().max().copied().unwrap_or(0);
        let mut left = bytes.saturating_sub(least(&sizes) + spare);
        let kept = sizes.iter().take_while(|size| {
            let fits = **size <= left;
            left = left.saturating_sub(**size);
            fits
        });
        let kept = kept.count();
        let (next, layers) = sync_channel(1);
        let model = model.clone();
        let read = move || {
            for layer in layers {
                let mixture = model.weights().layers.get::<usize>(layer).and_then(mixture);
                mixture.iter().for_each(|mixture| mixture.advise(Reading::Soon));
            }
        };
        let thread = ThreadPoolBuilder::new().num_threads(1).thread_name(|_| "experts".into());
        let thread = thread.build()?;
        thread.spawn(read);
        Ok(Some(OnDisk { kept, next, _thread: thread }))
    }
}

impl Step<'_, '_> {
    /// Lets the system read the chosen experts of a layer all at once; or, with many tokens, the
    /// experts of the next layer, while this one is computed.
    pub(super) fn read_experts(&mut self, layer: usize, mixture: &Mixture<'_>, slots: usize) {
        let pass = self.pass;
        let (Some(on_disk), Some(experts)) = (pass.on_disk, &pass.state.experts) else { return };
        let most = uses_most(slots, mixture);
        // If no layer keeps its experts, the system reads ahead as well as this does.
        if most && on_disk.kept == 0 {
            return;
        }
        let Some(phase) = self.worker.phase(if most { 1 } else { mixture.experts.len() }) else {
            return;
        };
        let chosen = experts.slots.read(&phase, slots);
        phase.for_each(|claim| {
            let expert = claim.task();
            if most {
                // If the thread is still busy, the system reads what is missing when it is needed.
                let _ = on_disk.next.try_send(layer + 1);
            } else if !chosen.of_expert(expert).is_empty() {
                mixture.experts[expert].advise(Reading::Soon);
            }
        });
    }

    /// Lets the system use the memory of a layer's experts, if most of them were read.
    pub(super) fn leave_experts(&mut self, layer: usize, mixture: &Mixture<'_>, slots: usize) {
        let Some(on_disk) = self.pass.on_disk else { return };
        if on_disk.kept == 0 || layer < on_disk.kept || !uses_most(slots, mixture) {
            return;
        }
        let Some(phase) = self.worker.phase(mixture.experts.len()) else { return };
        phase.for_each(|claim| mixture.experts[claim.task()].advise(Reading::Late));
    }
}

/// Returns the bytes of the experts of each layer, 0 for a layer without experts.
pub fn bytes_by_layer(weights: &Weights<'_>) -> Vec<u64> {
    weights.layers.iter().map(|layer| mixture(layer).map_or(0, Mixture::expert_bytes)).collect()
}

/// Returns the bytes of the experts that must be in memory: while one layer is computed, the next one
/// is read.
pub fn least(by_layer: &[u64]) -> u64 {
    let two = 2 * by_layer.iter().max().copied().unwrap_or(0);
    two.min(by_layer.iter().sum())
}

/// Returns whether most experts would compute a token, if `slots` of them were chosen at random.
fn uses_most(slots: usize, mixture: &Mixture<'_>) -> bool {
    slots >= 2 * mixture.experts.len()
}

/// Returns the mixture of a layer, if it has one.
fn mixture<'l, 'a>(layer: &'l Vec<Branch<'a>>) -> Option<&'l Mixture<'a>> {
    layer.iter().flat_map(|branch| &branch.mixers).find_map(|mixer| match mixer {
        Mixer::Experts(mixture) => Some(mixture),
        _ => None,
    })
}

impl Mixture<'_> {
    fn expert_bytes(&self) -> u64 {
        self.experts.iter().flat_map(Network::parts).map(|part| part.len() as u64).sum()
    }

    fn advise(&self, reading: Reading) {
        self.experts.iter().for_each(|expert| expert.advise(reading));
    }
}

impl Network<'_> {
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        [&self.gate_up, &self.down]
            .into_iter()
            .flat_map(|linear: &Linear<'_>| &linear.segments)
            .map(|segment| segment.matrix.bytes())
    }

    fn advise(&self, reading: Reading) {
        self.parts().for_each(|bytes| advise(bytes, reading));
    }
}
