//! Experts that do not fit in memory.

use rope_cpu::model::{Options, Session};

use crate::model::session::{How, logits, tokens, with_model};
use rope_cpu_testing::tiny::Tiny;

#[test]
fn experts_read_from_disk_change_no_bits() {
    for name in ["qwen3moe", "granitemoe", "lfm2moe", "qwen35moe"] {
        let tiny = Tiny { layers: 6, ..Tiny::named(name) };
        let all = tokens(&tiny, 60);
        let run = |expert_bytes| {
            let how = How { micro_batch: 40, threads: 2, ..How::default() };
            with_model(&tiny.builder(), &[], &how, |model, rope, options| {
                let options = Options { expert_bytes, ..options };
                let mut session = Session::new(model, rope, options).unwrap();
                let mut found = logits(&mut session, &all[..50]);
                found.extend(all[50..].iter().flat_map(|token| logits(&mut session, &[*token])));
                found
            })
        };
        let expected = run(Some(u64::MAX));
        // Prompts keep the experts of no layer in memory, then of some layers.
        let experts = tiny.tensors().into_iter().filter(|(name, _)| name.contains("_exps"));
        let experts: usize = experts.map(|(_, shape)| 4 * shape.iter().product::<usize>()).sum();
        for bytes in [0, experts as u64 * 5 / 6] {
            assert!(run(Some(bytes)) == expected, "{name}, {bytes}");
        }
    }
}
