//! The instruction sets that are usable on a CPU.

use rope_cpu_kernels::Cpu;

/// `USABLE` has the names for an emulated CPU, which `scripts/test-emulated` sets.
#[test]
fn usable_instruction_sets_are_those_of_the_cpu() {
    let usable: Vec<_> = Cpu::available().into_iter().map(Cpu::name).collect();
    if let Ok(expected) = std::env::var("USABLE") {
        assert_eq!(usable.join(","), expected);
    }
    assert_eq!(usable[0], "scalar");
    assert_eq!(Cpu::best().name(), usable[usable.len() - 1]);
    for name in Cpu::NAMES {
        assert_eq!(Cpu::named(name).is_some(), usable.contains(name), "{name}");
    }
}
